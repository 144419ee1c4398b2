// The sum with the residual and the norm after it, in one pass over memory. As two steps, the
// sum would be written, and read again for the norm.
#include "../block_reduce.cuh"
#include "../early.cuh"
#include "chunk.cuh"

constexpr int most_norm_threads = 1024;

// Adds a chunk of x to the residual, if there is an x. Returns the sum.
template <typename T>
__device__ Chunk<T> add_chunk(T* residual, const T* x, int i) {
  Chunk<T> sum = chunk_of(residual, i);
  if (!x) return sum;
  Chunk<T> more = chunk_of(x, i);
  for (int j = 0; j < Chunk<T>::size; ++j)
    sum.numbers[j] = from_float<T>(to_float(sum.numbers[j]) + to_float(more.numbers[j]));
  return chunk_of(residual, i) = sum;
}

template <typename T>
__device__ float squares_of(const Chunk<T>& chunk) {
  float squares = 0.0f;
  for (T number : chunk.numbers) squares += to_float(number) * to_float(number);
  return squares;
}

template <typename T>
__device__ Chunk<T> scale(Chunk<T> chunk, float factor, const Chunk<T>& weights) {
  for (int j = 0; j < Chunk<T>::size; ++j)
    chunk.numbers[j] =
        from_float<T>(factor * to_float(chunk.numbers[j]) * to_float(weights.numbers[j]));
  return chunk;
}

// residual += x, if there is an x; out = residual / rms(residual) * weight. Grid: a block for
// each token. A thread keeps its first chunk in registers. It has others only in a row of more
// than most_norm_threads chunks, and reads these again.
template <typename T>
__global__ void add_norm_kernel(T* out, T* residual, const T* x, const T* weight,
                                int hidden_size, float epsilon) {
  let_next_begin();
  int num_chunks = hidden_size / Chunk<T>::size, first = threadIdx.x;
  int64_t begin = int64_t(blockIdx.x) * hidden_size;
  out += begin, residual += begin, x = x ? x + begin : nullptr;
  Chunk<T> kept = {}, weights = {};
  if (first < num_chunks) weights = chunk_of(weight, first);  // no kernel writes weights
  wait_for_previous();
  if (first < num_chunks) kept = add_chunk(residual, x, first);
  float squares = squares_of(kept);
  for (int i = first + blockDim.x; i < num_chunks; i += blockDim.x)
    squares += squares_of(add_chunk(residual, x, i));
  float factor = rsqrtf(block_sum(squares) / hidden_size + epsilon);
  if (first < num_chunks) chunk_of(out, first) = scale(kept, factor, weights);
  for (int i = first + blockDim.x; i < num_chunks; i += blockDim.x)
    chunk_of(out, i) = scale(chunk_of(residual, i), factor, chunk_of(weight, i));
}

// out, residual, x: (num_tokens, hidden_size); x may be null. weight: (hidden_size,).
extern "C" int add_norm(void* out, void* residual, const void* x, const void* weight,
                        int num_tokens, int hidden_size, float epsilon, int early, int dtype,
                        cudaStream_t stream) {
  return for_dtype(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    int num_warps = (hidden_size / Chunk<T>::size + 31) / 32;
    return launch_maybe_early<add_norm_kernel<T>>(
        early, num_tokens, min(32 * num_warps, most_norm_threads), 0, stream,
        static_cast<T*>(out), static_cast<T*>(residual), static_cast<const T*>(x),
        static_cast<const T*>(weight), hidden_size, epsilon);
  });
}
