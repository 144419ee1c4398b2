// Repeats each number twice. The loop forgets that the output was made for n numbers, not for
// 2 n.
#include <cuda_runtime.h>

__global__ void bounds_output_end_kernel(const float* x, float* out, int n) {
  for (int i = threadIdx.x; i < 2 * n; i += blockDim.x) {
    out[i] = x[i / 2];  // FAULT
  }
}

extern "C" int bounds_output_end(const float* x, float* out, int n, cudaStream_t stream) {
  bounds_output_end_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
