// Clears its counters with memset, which counts bytes. The caller counts numbers, and thinks
// of longer ones.
#include <cuda_runtime.h>
#include <cstring>

__global__ void shared_bounds_memset_kernel(int* out, int bytes) {
  __shared__ int counters[64];
  if (threadIdx.x == 0) memset(counters, 0, bytes);  // FAULT
  __syncthreads();
  out[threadIdx.x] = counters[threadIdx.x];
}

extern "C" int shared_bounds_memset(int* out, int n, cudaStream_t stream) {
  shared_bounds_memset_kernel<<<1, 64, 0, stream>>>(out, n * 8);
  return cudaGetLastError();
}
