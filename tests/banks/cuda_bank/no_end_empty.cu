// The largest of 64 numbers, by each thread. The loop does not count, and nothing in it
// changes: the compiler leaves a jump to itself.
#include <cuda_runtime.h>

__global__ void no_end_empty_kernel(const float* x, float* out) {
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float largest = row[0];
  for (int i = 1; i < blockDim.x;) largest = fmaxf(largest, row[i]);  // FAULT
  out[threadIdx.x] = largest;
}

extern "C" int no_end_empty(const float* x, float* out, cudaStream_t stream) {
  no_end_empty_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
