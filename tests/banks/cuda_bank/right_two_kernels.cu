// Smooths twice: the second kernel reads, also across its blocks' borders, what the first has
// written. A launch waits for the one before.
#include <cuda_runtime.h>

__global__ void right_two_kernels_smooth(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float left = i > 0 ? x[i - 1] : 0.0f;
  float right = i + 1 < n ? x[i + 1] : 0.0f;
  out[i] = 0.25f * left + 0.5f * x[i] + 0.25f * right;
}

extern "C" int right_two_kernels(const float* x, float* scratch, float* out, int n,
                                 cudaStream_t stream) {
  int blocks = (n + 31) / 32;
  right_two_kernels_smooth<<<blocks, 32, 0, stream>>>(x, scratch, n);
  right_two_kernels_smooth<<<blocks, 32, 0, stream>>>(scratch, out, n);
  return cudaGetLastError();
}
