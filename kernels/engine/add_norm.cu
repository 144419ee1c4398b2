// The sum with the residual and the norm after it, in one pass over memory. As two steps, the
// sum would be written, and read again for the norm.
#include <cuda_runtime.h>

#include "../block_reduce.cuh"
#include "chunk.cuh"

constexpr int norm_threads = 128;

// What is added to a chunk of a token: of x, or of the parts that few_rows.cu leaves, each
// (num_tokens, hidden_size).
template <typename T>
struct Added {
  const T* x;
  const float* parts;
  int num_parts, hidden_size;

  __device__ bool is_there() const { return x || num_parts > 0; }
  __device__ void get(float (&numbers)[Chunk<T>::size], int i) const {
    constexpr int size = Chunk<T>::size;
    for (float& number : numbers) number = 0.0f;
    if (x) {
      Chunk<T> chunk = chunk_of(x + int64_t(blockIdx.x) * hidden_size, i);
      for (int j = 0; j < size; ++j) numbers[j] = to_float(chunk.numbers[j]);
    }
    for (int part = 0; part < num_parts; ++part) {
      const float* row = parts + (int64_t(part) * gridDim.x + blockIdx.x) * hidden_size;
      for (int j = 0; j < size; j += 4) {
        Chunk<float> chunk = chunk_of(row, (i * size + j) / 4);
        for (int k = 0; k < 4; ++k) numbers[j + k] += chunk.numbers[k];
      }
    }
  }
};

// residual += what is added, if anything; out = residual / rms(residual) * weight. Grid: a
// block for each token.
template <typename T>
__global__ void add_norm_kernel(T* out, T* residual, Added<T> added, const T* weight,
                                int hidden_size, float epsilon) {
  int64_t begin = int64_t(blockIdx.x) * hidden_size;
  int num_chunks = hidden_size / Chunk<T>::size;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < num_chunks; i += norm_threads) {
    Chunk<T> sum = chunk_of(residual + begin, i);
    if (added.is_there()) {
      float more[Chunk<T>::size];
      added.get(more, i);
      for (int j = 0; j < Chunk<T>::size; ++j)
        sum.numbers[j] = from_float<T>(to_float(sum.numbers[j]) + more[j]);
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

// out, residual, x: (num_tokens, hidden_size); x may be null. parts: float (num_parts,
// num_tokens, hidden_size), added where there is no x; may be null with num_parts 0. weight:
// (hidden_size,).
extern "C" int add_norm(void* out, void* residual, const void* x, const float* parts,
                        const void* weight, int num_parts, int num_tokens, int hidden_size,
                        float epsilon, int dtype, cudaStream_t stream) {
  return for_dtype(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Added<T> added{static_cast<const T*>(x), parts, num_parts, hidden_size};
    add_norm_kernel<T><<<num_tokens, norm_threads, 0, stream>>>(
        static_cast<T*>(out), static_cast<T*>(residual), added, static_cast<const T*>(weight),
        hidden_size, epsilon);
    return int(cudaGetLastError());
  });
}
