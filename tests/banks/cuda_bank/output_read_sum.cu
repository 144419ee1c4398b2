// Adds up three vectors in the output, which nobody has set to zero.
#include <cuda_runtime.h>

__global__ void output_read_sum_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    for (int row = 0; row < 3; row++) {
      out[i] += x[row * n + i];  // FAULT
    }
  }
}

extern "C" int output_read_sum(const float* x, float* out, int n, cudaStream_t stream) {
  output_read_sum_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
