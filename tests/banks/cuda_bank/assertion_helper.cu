// Square roots, by a helper that asserts that its number is not negative. The number of one
// thread is.
#include <cassert>
#include <cuda_runtime.h>

__device__ __forceinline__ float assertion_helper_root(float value) {
  assert(value >= 0.0f && "a square root of a negative number");  // FAULT
  return sqrtf(value);
}

__global__ void assertion_helper_kernel(const float* x, float* out) {
  out[threadIdx.x] = assertion_helper_root(x[threadIdx.x]);
}

extern "C" int assertion_helper(const float* x, float* out, int n, cudaStream_t stream) {
  assertion_helper_kernel<<<1, n, 0, stream>>>(x, out);
  return cudaGetLastError();
}
