// A histogram of eight bins in shared memory, whose bins are counted up without atomics.
#include <cuda_runtime.h>

__global__ void non_atomic_histogram_kernel(const int* x, int* out, int n) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) { bins[threadIdx.x] = 0; }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    bins[x[i]]++;  // FAULT
  }
  __syncthreads();
  if (threadIdx.x < 8) { out[threadIdx.x] = bins[threadIdx.x]; }
}

extern "C" int non_atomic_histogram(const int* x, int* out, int n, cudaStream_t stream) {
  non_atomic_histogram_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
