// What lies between a layer's first product and its attention, in one launch: the norms of
// queries and keys, their rotation by position, and the write of keys and values into the
// pool.
#include <cuda_runtime.h>

#include <type_traits>

#include "chunk.cuh"
#include "narrow.cuh"

constexpr int rotate_warps = 8;
constexpr int most_head_pairs = 4;  // of a lane: a head has at most 256 numbers

struct RotateParams {
  void* qkv;             // (num_tokens, num_q_heads + 2 * num_kv_heads, head_size)
  void* k_cache;         // (num_slots, num_kv_heads, head_size)
  void* v_cache;         // likewise
  const void* q_weight;  // (head_size,), of the norm; null: no norm
  const void* k_weight;
  const float* turns;        // (num_positions, head_size / 2, 2): cosine and sine
  const int64_t* positions;  // (num_tokens,)
  const int64_t* slots;      // (num_tokens,); -1 for a token that is written nowhere
  int num_tokens, num_q_heads, num_kv_heads, head_size;
  float epsilon;
  int dtype;
};

__device__ inline float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

// A number as a cache holds it: as it is, or rounded once more.
template <typename Cached, typename T>
__device__ Cached as_cached(T number) {
  if constexpr (std::is_same_v<Cached, T>) return number;
  else return from_float<Cached>(to_float(number));
}

// A head's norm and rotation by a warp. Number i of the first half is turned together with
// number i of the second.
template <typename Cached, typename T>
__device__ void rotate_head(Cached* to, const T* head, const T* weight, const float* turns,
                            int head_size, float epsilon) {
  int lane = threadIdx.x % 32, half = head_size / 2;
  float first[most_head_pairs] = {}, second[most_head_pairs] = {}, squares = 0.0f;
#pragma unroll
  for (int n = 0; n < most_head_pairs; ++n) {
    int i = lane + 32 * n;
    if (i >= half) continue;
    first[n] = to_float(head[i]), second[n] = to_float(head[half + i]);
    squares += first[n] * first[n] + second[n] * second[n];
  }
  float factor = weight ? rsqrtf(warp_sum(squares) / head_size + epsilon) : 1.0f;
#pragma unroll
  for (int n = 0; n < most_head_pairs; ++n) {
    int i = lane + 32 * n;
    if (i >= half) continue;
    float a = first[n] * factor, b = second[n] * factor;
    if (weight) a *= to_float(weight[i]), b *= to_float(weight[half + i]);
    float cosine = turns[2 * i], sine = turns[2 * i + 1];
    to[i] = as_cached<Cached>(from_float<T>(a * cosine - b * sine));
    to[half + i] = as_cached<Cached>(from_float<T>(b * cosine + a * sine));
  }
}

// Grid: (num_tokens, heads of all three kinds / rotate_warps, rounded up). A head has a warp.
template <typename Cached, typename T>
__global__ void rotate_kernel(RotateParams params) {
  int token = blockIdx.x, head = blockIdx.y * rotate_warps + threadIdx.x / 32;
  int head_size = params.head_size, kv_head = head - params.num_q_heads;
  int num_heads = params.num_q_heads + 2 * params.num_kv_heads;
  if (head >= num_heads) return;
  T* from = static_cast<T*>(params.qkv) + (int64_t(token) * num_heads + head) * head_size;
  const float* turns = params.turns + params.positions[token] * head_size;
  if (kv_head < 0) {
    rotate_head(from, from, static_cast<const T*>(params.q_weight), turns, head_size,
                params.epsilon);
    return;
  }
  int64_t slot = params.slots[token];
  if (slot < 0) return;
  if (kv_head < params.num_kv_heads) {
    Cached* to = static_cast<Cached*>(params.k_cache) +
                 (slot * params.num_kv_heads + kv_head) * head_size;
    rotate_head(to, from, static_cast<const T*>(params.k_weight), turns, head_size,
                params.epsilon);
  } else {
    Cached* to = static_cast<Cached*>(params.v_cache) +
                 (slot * params.num_kv_heads + kv_head - params.num_kv_heads) * head_size;
    for (int i = threadIdx.x % 32; i < head_size; i += 32) to[i] = as_cached<Cached>(from[i]);
  }
}

template <typename Cached, typename T>
int launch_rotate(RotateParams params, cudaStream_t stream) {
  int num_heads = params.num_q_heads + 2 * params.num_kv_heads;
  dim3 grid(params.num_tokens, (num_heads + rotate_warps - 1) / rotate_warps);
  rotate_kernel<Cached, T><<<grid, rotate_warps * 32, 0, stream>>>(params);
  return int(cudaGetLastError());
}

// The queries are rotated in their place.
extern "C" int rotate(RotateParams params, cudaStream_t stream) {
  return for_dtype(params.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return launch_rotate<T, T>(params, stream);
  });
}

// The same, into caches of 8 bits.
extern "C" int rotate_into_fp8(RotateParams params, cudaStream_t stream) {
  return for_dtype(params.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return launch_rotate<Fp8, T>(params, stream);
  });
}
