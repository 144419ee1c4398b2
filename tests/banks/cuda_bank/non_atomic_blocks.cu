// Each block sums its numbers and thread 0 adds the sum to the total, without atomicAdd: here
// only blocks get into each other's way.
#include <cuda_runtime.h>

__global__ void non_atomic_blocks_kernel(const float* x, float* total) {
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) { sum += x[blockIdx.x * 32 + i]; }
    total[0] += sum;  // FAULT
  }
}

extern "C" int non_atomic_blocks(const float* x, float* total, int blocks,
                                 cudaStream_t stream) {
  non_atomic_blocks_kernel<<<blocks, 32, 0, stream>>>(x, total);
  return cudaGetLastError();
}
