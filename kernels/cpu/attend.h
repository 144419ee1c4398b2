// Attention that reads keys and values where they are in the pool, block by block.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "numbers.h"

// A query, and what it has seen so far: (o, m, l), as in lesson 04.
struct Query {
  const float* q;
  float* o;
  float m = -INFINITY, l = 0.0f;
};

// A block's part: its scores, then one rescaling for all of its keys.
template <typename T>
inline void attend_block(Query& query, float* scores, const T* keys, const T* values,
                         int num_valid, int64_t stride, int64_t head_size, float scale) {
  float m = query.m;
  for (int slot = 0; slot < num_valid; ++slot) {
    scores[slot] = scale * dot(query.q, keys + slot * stride, head_size);
    m = std::max(m, scores[slot]);
  }
  float rescale = m == query.m ? 1.0f : std::exp(query.m - m);
  for (int64_t i = 0; i < head_size; ++i) query.o[i] *= rescale;
  query.l *= rescale, query.m = m;
  for (int slot = 0; slot < num_valid; ++slot) {
    float weight = std::exp(scores[slot] - m);
    query.l += weight;
    for (int64_t i = 0; i < head_size; ++i)
      query.o[i] += weight * widen(values[slot * stride + i]);
  }
}
