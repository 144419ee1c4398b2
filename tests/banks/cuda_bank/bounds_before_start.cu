// Differences of neighbours, backwards: thread 0 reads before the first element.
#include <cuda_runtime.h>

__global__ void bounds_before_start_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = x[i] - x[i - 1];  // FAULT
  }
}

extern "C" int bounds_before_start(const float* x, float* out, int n, cudaStream_t stream) {
  bounds_before_start_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
