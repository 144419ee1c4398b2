// Asks for 300 KiB of shared memory, more than any GPU has for one block, and does not look
// whether the permission was given.
#include <cuda_runtime.h>

__global__ void bad_launch_too_much_kernel(const float* x, float* out) {
  extern __shared__ float numbers[];
  numbers[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

extern "C" int bad_launch_too_much(const float* x, float* out, int n, cudaStream_t stream) {
  int bytes = 300 * 1024;
  cudaFuncSetAttribute(bad_launch_too_much_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       bytes);
  cudaGetLastError();
  bad_launch_too_much_kernel<<<1, n, bytes, stream>>>(x, out);  // FAULT
  return cudaGetLastError();
}
