// Reverses each block's numbers through shared memory. The barrier between filling the tile
// and reading it is missing.
#include <cuda_runtime.h>

__global__ void race_reverse_kernel(const float* x, float* out) {
  __shared__ float tile[128];
  int thread = threadIdx.x;
  int first = blockIdx.x * 128;
  tile[thread] = x[first + thread];          // FAULT
  out[first + thread] = tile[127 - thread];  // FAULT
}

extern "C" int race_reverse(const float* x, float* out, int blocks, cudaStream_t stream) {
  race_reverse_kernel<<<blocks, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
