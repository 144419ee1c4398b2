// All threads of all blocks read the same words, of global and of shared memory: reading
// together is no race.
#include <cuda_runtime.h>

__global__ void right_same_word_kernel(const float* x, const float* scale, float* out) {
  __shared__ float first;
  if (threadIdx.x == blockDim.x - 1) { first = x[blockIdx.x * blockDim.x]; }
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = (x[i] - first) * *scale;
}

extern "C" int right_same_word(const float* x, const float* scale, float* out, int blocks,
                               cudaStream_t stream) {
  right_same_word_kernel<<<blocks, 64, 0, stream>>>(x, scale, out);
  return cudaGetLastError();
}
