// Reverses numbers through dynamic shared memory. The launch gives the number of elements
// where bytes are asked for.
#include <cuda_runtime.h>

__global__ void dynamic_shared_elements_kernel(const float* x, float* out) {
  extern __shared__ float numbers[];
  numbers[threadIdx.x] = x[threadIdx.x];  // FAULT
  __syncthreads();
  out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

extern "C" int dynamic_shared_elements(const float* x, float* out, int threads,
                                       cudaStream_t stream) {
  dynamic_shared_elements_kernel<<<1, threads, threads, stream>>>(x, out);
  return cudaGetLastError();
}
