// Adds two vectors. The last block has more threads than numbers are left, and the guard i < n
// is missing.
#include <cuda_runtime.h>

__global__ void bounds_no_guard_kernel(const float* a, const float* b, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = a[i] + b[i];  // FAULT
  out[i] = sum;
}

extern "C" int bounds_no_guard(const float* a, const float* b, float* out, int n,
                               cudaStream_t stream) {
  bounds_no_guard_kernel<<<(n + 63) / 64, 64, 0, stream>>>(a, b, out);
  return cudaGetLastError();
}
