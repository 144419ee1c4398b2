// A histogram: each block counts in shared memory with atomics, then adds its counts to
// everybody's.
#include <cuda_runtime.h>

__global__ void right_histogram_kernel(const unsigned char* x, int* counts, int n, int bins) {
  extern __shared__ int integers[];
  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) { integers[bin] = 0; }
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(integers + x[i], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    if (integers[bin] > 0) { atomicAdd(counts + bin, integers[bin]); }
  }
}

extern "C" int right_histogram(const unsigned char* x, int* counts, int n, int bins,
                               cudaStream_t stream) {
  right_histogram_kernel<<<3, 64, bins * sizeof(int), stream>>>(x, counts, n, bins);
  return cudaGetLastError();
}
