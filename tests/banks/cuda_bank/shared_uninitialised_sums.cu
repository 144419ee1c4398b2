// Each thread adds its numbers up in a place of its own, which it has not set to zero: shared
// memory starts with anything.
#include <cuda_runtime.h>

__global__ void shared_uninitialised_sums_kernel(const float* x, float* out, int n) {
  __shared__ float sums[64];
  int thread = threadIdx.x;
  for (int i = thread; i < n; i += 64) {
    sums[thread] += x[i];  // FAULT
  }
  out[thread] = sums[thread];
}

extern "C" int shared_uninitialised_sums(const float* x, float* out, int n,
                                         cudaStream_t stream) {
  shared_uninitialised_sums_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
