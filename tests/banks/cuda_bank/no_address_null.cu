// Adds a bias. There need not be one, and then its pointer is null, but the kernel does not
// ask.
#include <cuda_runtime.h>

__global__ void no_address_null_kernel(const float* x, const float* bias, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = x[i] + bias[i];  // FAULT
  }
}

extern "C" int no_address_null(const float* x, const float* bias, float* out, int n,
                               cudaStream_t stream) {
  no_address_null_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, bias, out, n);
  return cudaGetLastError();
}
