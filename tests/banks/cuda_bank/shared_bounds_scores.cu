// Keeps one score for each token in a buffer of fixed length, as if no context were longer
// than 32.
#include <cuda_runtime.h>

__global__ void shared_bounds_scores_kernel(const float* x, float* out, int context_len) {
  __shared__ float scores[32];
  for (int token = threadIdx.x; token < context_len; token += blockDim.x) {
    scores[token] = 2.0f * x[token];  // FAULT
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int token = 0; token < context_len; token++) { sum += scores[token]; }
    out[0] = sum;
  }
}

extern "C" int shared_bounds_scores(const float* x, float* out, int context_len,
                                    cudaStream_t stream) {
  shared_bounds_scores_kernel<<<1, 32, 0, stream>>>(x, out, context_len);
  return cudaGetLastError();
}
