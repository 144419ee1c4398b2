// The largest number of a block: a thread may compare with a maximum that another is just
// replacing.
#include <cuda_runtime.h>

__global__ void non_atomic_maximum_kernel(const int* x, int* out) {
  __shared__ int largest;
  if (threadIdx.x == 0) { largest = x[0]; }
  __syncthreads();
  largest = max(largest, x[threadIdx.x]);  // FAULT
  __syncthreads();
  if (threadIdx.x == 0) { out[0] = largest; }
}

extern "C" int non_atomic_maximum(const int* x, int* out, cudaStream_t stream) {
  non_atomic_maximum_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
