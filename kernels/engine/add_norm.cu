// The sum with the residual and the norm after it, in one pass over memory. As two steps, the
// sum would be written, and read again for the norm.
#include <cuda_runtime.h>

#include "../block_reduce.cuh"
#include "chunk.cuh"

constexpr int norm_threads = 128;

// residual += x, if there is an x; out = residual / rms(residual) * weight. Grid: a block for
// each token.
template <typename T>
__global__ void add_norm_kernel(T* out, T* residual, const T* x, const T* weight,
                                int hidden_size, float epsilon) {
  int64_t begin = int64_t(blockIdx.x) * hidden_size;
  int num_chunks = hidden_size / Chunk<T>::size;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < num_chunks; i += norm_threads) {
    Chunk<T> sum = chunk_of(residual + begin, i);
    if (x) {
      Chunk<T> more = chunk_of(x + begin, i);
      for (int j = 0; j < Chunk<T>::size; ++j)
        sum.numbers[j] = from_float<T>(to_float(sum.numbers[j]) + to_float(more.numbers[j]));
      chunk_of(residual + begin, i) = sum;
    }
    for (T number : sum.numbers) squares += to_float(number) * to_float(number);
  }
  float factor = rsqrtf(block_sum(squares) / hidden_size + epsilon);
  for (int i = threadIdx.x; i < num_chunks; i += norm_threads) {  // its own chunks again
    Chunk<T> scaled = chunk_of(residual + begin, i), weights = chunk_of(weight, i);
    for (int j = 0; j < Chunk<T>::size; ++j)
      scaled.numbers[j] =
          from_float<T>(factor * to_float(scaled.numbers[j]) * to_float(weights.numbers[j]));
    chunk_of(out + begin, i) = scaled;
  }
}

// out, residual, x: (num_tokens, hidden_size); x may be null. weight: (hidden_size,).
extern "C" int add_norm(void* out, void* residual, const void* x, const void* weight,
                        int num_tokens, int hidden_size, float epsilon, int dtype,
                        cudaStream_t stream) {
  return for_dtype(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    add_norm_kernel<T><<<num_tokens, norm_threads, 0, stream>>>(
        static_cast<T*>(out), static_cast<T*>(residual), static_cast<const T*>(x),
        static_cast<const T*>(weight), hidden_size, epsilon);
    return int(cudaGetLastError());
  });
}
