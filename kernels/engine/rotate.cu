// What lies between a layer's first product and its attention, in one launch: the norms of
// queries and keys, their rotation by position, and the write of keys and values into the
// pool.
#include <type_traits>

#include "../early.cuh"
#include "chunk.cuh"
#include "narrow.cuh"

constexpr int rotate_threads = 256;
constexpr int most_half = 128;  // numbers: a head has at most 256

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
  int early, dtype;
};

// Neighbouring numbers that a lane loads or stores at once.
template <typename T, int n>
struct alignas(n * sizeof(T)) Numbers {
  T numbers[n];
};
template <int n, typename T>
__device__ Numbers<T, n>& numbers_at(T* row, int i) {
  return *reinterpret_cast<Numbers<T, n>*>(row + i);
}
template <int n, typename T>
__device__ const Numbers<T, n>& numbers_at(const T* row, int i) {
  return *reinterpret_cast<const Numbers<T, n>*>(row + i);
}

// The lanes that have a head: `size` of them, a power of two.
struct HeadLanes {
  int size;
  __device__ int lane() const { return threadIdx.x % size; }
  __device__ float sum(float value) const {
    uint32_t mask = (size < 32 ? (1u << size) - 1 : ~0u) << (threadIdx.x % 32 / size * size);
    for (int distance = size / 2; distance > 0; distance /= 2)
      value += __shfl_xor_sync(mask, value, distance);
    return value;
  }
};

// A number as a cache holds it: as it is, or rounded once more.
template <typename Cached, typename T>
__device__ Cached as_cached(T number) {
  if constexpr (std::is_same_v<Cached, T>) return number;
  else return from_float<Cached>(to_float(number));
}

// A head's norm and rotation, n numbers of each half at a time. Number i of the first half is
// turned together with number i of the second.
template <int n, typename Cached, typename T>
__device__ void rotate_head(Cached* to, const T* head, const T* weight, const float* turns,
                            int head_size, float epsilon, HeadLanes lanes) {
  constexpr int most_rounds = n == 1 ? most_half / 32 : 1;
  int half = head_size / 2;
  Numbers<T, n> first[most_rounds] = {}, second[most_rounds] = {};
  Numbers<T, n> first_weights[most_rounds], second_weights[most_rounds];
  float squares = 0.0f;
#pragma unroll
  for (int round = 0; round < most_rounds; ++round) {
    int i = (lanes.lane() + round * lanes.size) * n;
    if (i >= half) continue;
    first[round] = numbers_at<n>(head, i), second[round] = numbers_at<n>(head, half + i);
    if (weight)  // asked for now, since the first one to need them would wait for them
      first_weights[round] = numbers_at<n>(weight, i),
      second_weights[round] = numbers_at<n>(weight, half + i);
    for (int j = 0; j < n; ++j) {
      float a = to_float(first[round].numbers[j]), b = to_float(second[round].numbers[j]);
      squares += a * a + b * b;
    }
  }
  float factor = weight ? rsqrtf(lanes.sum(squares) / head_size + epsilon) : 1.0f;
#pragma unroll
  for (int round = 0; round < most_rounds; ++round) {
    int i = (lanes.lane() + round * lanes.size) * n;
    if (i >= half) continue;
    Numbers<float, 2 * n> turn = numbers_at<2 * n>(turns, 2 * i);
    Numbers<Cached, n> of_first, of_second;
    for (int j = 0; j < n; ++j) {
      float a = to_float(first[round].numbers[j]) * factor;
      float b = to_float(second[round].numbers[j]) * factor;
      if (weight) a *= to_float(first_weights[round].numbers[j]);
      if (weight) b *= to_float(second_weights[round].numbers[j]);
      float cosine = turn.numbers[2 * j], sine = turn.numbers[2 * j + 1];
      of_first.numbers[j] = as_cached<Cached>(from_float<T>(a * cosine - b * sine));
      of_second.numbers[j] = as_cached<Cached>(from_float<T>(b * cosine + a * sine));
    }
    numbers_at<n>(to, i) = of_first, numbers_at<n>(to, half + i) = of_second;
  }
}

template <int n, typename Cached, typename T>
__device__ void copy_head(Cached* to, const T* head, int head_size, HeadLanes lanes) {
  for (int i = lanes.lane() * n; i < head_size; i += lanes.size * n) {
    Numbers<T, n> from = numbers_at<n>(head, i);
    Numbers<Cached, n> cached;
    for (int j = 0; j < n; ++j) cached.numbers[j] = as_cached<Cached>(from.numbers[j]);
    numbers_at<n>(to, i) = cached;
  }
}

// Grid: as many threads as all heads of all tokens have lanes, rounded up to whole blocks.
template <int n, typename Cached, typename T>
__global__ void rotate_kernel(RotateParams params, HeadLanes lanes) {
  let_next_begin();
  wait_for_previous();
  int num_heads = params.num_q_heads + 2 * params.num_kv_heads, head_size = params.head_size;
  int64_t number = (int64_t(blockIdx.x) * rotate_threads + threadIdx.x) / lanes.size;
  int64_t token = number / num_heads;
  if (token >= params.num_tokens) return;
  int head = number % num_heads, kv_head = head - params.num_q_heads;
  T* from = static_cast<T*>(params.qkv) + number * head_size;
  const float* turns = params.turns + params.positions[token] * head_size;
  auto weight = static_cast<const T*>(kv_head < 0 ? params.q_weight : params.k_weight);
  if (kv_head < 0)
    return rotate_head<n>(from, from, weight, turns, head_size, params.epsilon, lanes);
  int64_t slot = params.slots[token];
  if (slot < 0) return;
  bool is_key = kv_head < params.num_kv_heads;
  int64_t place = slot * params.num_kv_heads + kv_head - (is_key ? 0 : params.num_kv_heads);
  Cached* to = static_cast<Cached*>(is_key ? params.k_cache : params.v_cache);
  to += place * head_size;
  if (is_key) rotate_head<n>(to, from, weight, turns, head_size, params.epsilon, lanes);
  else copy_head<n>(to, from, head_size, lanes);
}

// A lane takes 16 bytes at a time, if half a head has a multiple of that, else one number.
template <typename Cached, typename T>
int launch_rotate(RotateParams params, cudaStream_t stream) {
  constexpr int n = Chunk<T>::size;
  int half = params.head_size / 2, num_heads = params.num_q_heads + 2 * params.num_kv_heads;
  bool in_chunks = half % n == 0;
  HeadLanes lanes{1};
  while (lanes.size < (in_chunks ? half / n : 32)) lanes.size *= 2;
  int64_t num_threads = int64_t(params.num_tokens) * num_heads * lanes.size;
  dim3 grid((num_threads + rotate_threads - 1) / rotate_threads);
  auto launch = in_chunks
                    ? launch_maybe_early<rotate_kernel<n, Cached, T>, RotateParams, HeadLanes>
                    : launch_maybe_early<rotate_kernel<1, Cached, T>, RotateParams, HeadLanes>;
  return launch(params.early, grid, rotate_threads, 0, stream, params, lanes);
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
