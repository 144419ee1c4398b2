// Differences of neighbours. The guard lets the last thread through, which reads one past the
// end.
#include <cuda_runtime.h>

__global__ void bounds_one_past_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = x[i + 1] - x[i];  // FAULT
  }
}

extern "C" int bounds_one_past(const float* x, float* out, int n, cudaStream_t stream) {
  bounds_one_past_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
