// Reverses 15000 numbers through 58.6 KiB of shared memory, having asked for leave, and looked
// at the answer, first.
#include <cuda_runtime.h>

__global__ void right_large_shared_kernel(const float* x, float* out, int n) {
  extern __shared__ float numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) { numbers[i] = x[i]; }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) { out[i] = numbers[n - 1 - i]; }
}

extern "C" int right_large_shared(const float* x, float* out, int n, cudaStream_t stream) {
  int bytes = n * static_cast<int>(sizeof(float));
  cudaError_t error = cudaFuncSetAttribute(right_large_shared_kernel,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) { return error; }
  right_large_shared_kernel<<<1, 64, bytes, stream>>>(x, out, n);
  return cudaGetLastError();
}
