// Rotates each block's numbers a number of times that differs by block, but not within one: a
// barrier in such a loop is fine.
#include <cuda_runtime.h>

__global__ void right_uniform_barriers_kernel(const float* x, const int* rounds, float* out) {
  __shared__ float tile[96];
  int thread = threadIdx.x;
  tile[thread] = x[blockIdx.x * 96 + thread];
  __syncthreads();
  for (int round = 0; round < rounds[blockIdx.x]; round++) {
    float next = tile[(thread + 1) % 96];
    __syncthreads();
    tile[thread] = next;
    __syncthreads();
  }
  out[blockIdx.x * 96 + thread] = tile[thread];
}

extern "C" int right_uniform_barriers(const float* x, const int* rounds, float* out,
                                      int blocks, cudaStream_t stream) {
  right_uniform_barriers_kernel<<<blocks, 96, 0, stream>>>(x, rounds, out);
  return cudaGetLastError();
}
