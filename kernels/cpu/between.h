// What a layer does between its products: norms, rotations, and the pool.
#pragma once
#include <cmath>

#include "numbers.h"

// residual += x, if there is an x; out = residual / rms(residual) * weight.
inline void add_norm(float* out, float* residual, const float* x, const float* weight,
                     int64_t size, float epsilon) {
  if (x)
    for (int64_t i = 0; i < size; ++i) residual[i] += x[i];
  float factor = 1.0f / std::sqrt(dot(residual, residual, size) / size + epsilon);
  for (int64_t i = 0; i < size; ++i) out[i] = residual[i] * factor * weight[i];
}

// A head's norm, if it has a weight, and its rotation. Number i of the first half is turned
// together with number i of the second. `to` may be `head`.
template <typename T>
inline void rotate_head(T* to, const float* head, const float* weight, const float* turns,
                        int64_t head_size, float epsilon) {
  float factor = 1.0f;
  if (weight) factor /= std::sqrt(dot(head, head, head_size) / head_size + epsilon);
  int64_t half = head_size / 2;
  for (int64_t i = 0; i < half; ++i) {
    float a = head[i] * factor, b = head[half + i] * factor;
    if (weight) a *= weight[i], b *= weight[half + i];
    float cosine = turns[2 * i], sine = turns[2 * i + 1];
    put(to[i], a * cosine - b * sine);
    put(to[half + i], b * cosine + a * sine);
  }
}

// Turns a token's queries in their place, and writes its keys and values into the pool's slot.
template <typename T>
inline void rotate_token(float* qkv, T* k_slot, T* v_slot, const float* q_weight,
                         const float* k_weight, const float* turns, int64_t num_q_heads,
                         int64_t num_kv_heads, int64_t head_size, float epsilon) {
  for (int64_t head = 0; head < num_q_heads; ++head, qkv += head_size)
    rotate_head(qkv, qkv, q_weight, turns, head_size, epsilon);
  for (int64_t head = 0; head < num_kv_heads; ++head, qkv += head_size)
    rotate_head(k_slot + head * head_size, qkv, k_weight, turns, head_size, epsilon);
  for (int64_t i = 0; i < num_kv_heads * head_size; ++i) put(v_slot[i], qkv[i]);
}
