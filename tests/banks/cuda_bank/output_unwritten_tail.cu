// Doubles n numbers. The number of blocks is rounded down, so the last 36 of 100 are left out.
#include <cuda_runtime.h>

__global__ void output_unwritten_tail_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { out[i] = 2.0f * x[i]; }
}

extern "C" int output_unwritten_tail(const float* x, float* out, int n, cudaStream_t stream) {
  output_unwritten_tail_kernel<<<n / 64, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
