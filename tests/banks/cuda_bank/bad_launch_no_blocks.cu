// Doubles n numbers. The number of blocks is rounded down, which for a short vector gives none
// at all.
#include <cuda_runtime.h>

__global__ void bad_launch_no_blocks_kernel(const float* x, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 2.0f * x[i];
}

extern "C" int bad_launch_no_blocks(const float* x, float* out, int n, cudaStream_t stream) {
  bad_launch_no_blocks_kernel<<<n / 256, 256, 0, stream>>>(x, out);  // FAULT
  return cudaGetLastError();
}
