// Doubles each number; the launch, by cudaLaunchKernel, asks for a block of all of them.
#include <cuda_runtime.h>

__global__ void bad_launch_function_kernel(const float* x, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = 2 * x[threadIdx.x];
}

extern "C" int bad_launch_function(const float* x, float* out, int n, cudaStream_t stream) {
  void* arguments[] = {&x, &out, &n};
  // FAULT
  return cudaLaunchKernel((void*)bad_launch_function_kernel, 1, n, arguments, 0, stream);
}
