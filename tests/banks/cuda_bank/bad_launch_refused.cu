// Asks for more dynamic shared memory than a block can have, and returns the error.
#include <cuda_runtime.h>

__global__ void bad_launch_refused_kernel(const float* x, float* out, int n) {
  extern __shared__ float numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = numbers[n - 1 - i];
}

extern "C" int bad_launch_refused(const float* x, float* out, int n, cudaStream_t stream) {
  int bytes = n * static_cast<int>(sizeof(float));
  auto kernel = bad_launch_refused_kernel;
  // FAULT
  auto code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (code != cudaSuccess) return code;
  bad_launch_refused_kernel<<<1, 64, bytes, stream>>>(x, out, n);
  return cudaGetLastError();
}
