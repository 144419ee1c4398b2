// Subtracts from each number the one before it. Thread 0 has none before it and reads in front
// of the tile.
#include <cuda_runtime.h>

__global__ void shared_bounds_negative_kernel(const float* x, float* out) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  tile[thread] = x[thread];
  __syncthreads();
  out[thread] = tile[thread] - tile[thread - 1];  // FAULT
}

extern "C" int shared_bounds_negative(const float* x, float* out, cudaStream_t stream) {
  shared_bounds_negative_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
