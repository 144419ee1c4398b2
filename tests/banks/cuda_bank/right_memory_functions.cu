// C's functions for memory: one thread clears a row and copies as many numbers into it as
// there are.
#include <cuda_runtime.h>
#include <cstring>

__global__ void right_memory_functions_kernel(const float* x, float* out, int n) {
  __shared__ float row[64];
  if (threadIdx.x == 0) {
    memset(row, 0, blockDim.x * sizeof(float));
    memcpy(row, x, n * sizeof(float));
  }
  __syncthreads();
  out[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

extern "C" int right_memory_functions(const float* x, float* out, int n, cudaStream_t stream) {
  right_memory_functions_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
