// Smooths x in place. The last thread of a block reads a number that the first thread of the
// next block replaces.
#include <cuda_runtime.h>

__global__ void between_blocks_in_place_kernel(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float next = i + 1 < n ? x[i + 1] : 0.0f;  // FAULT
  __syncthreads();
  if (i < n) {
    x[i] = 0.5f * (x[i] + next);  // FAULT
  }
}

extern "C" int between_blocks_in_place(float* x, int n, cudaStream_t stream) {
  between_blocks_in_place_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, n);
  return cudaGetLastError();
}
