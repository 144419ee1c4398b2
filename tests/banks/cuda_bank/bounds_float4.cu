// Copies numbers four at a time. 62 is not a multiple of four, so the last read takes two
// numbers too many.
#include <cuda_runtime.h>

__global__ void bounds_float4_kernel(const float* x, float* out, int n) {
  int first = 4 * threadIdx.x;
  if (first < n) {
    float4 four = *reinterpret_cast<const float4*>(x + first);  // FAULT
    float numbers[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4 && first + i < n; i++) { out[first + i] = numbers[i]; }
  }
}

extern "C" int bounds_float4(const float* x, float* out, int n, cudaStream_t stream) {
  bounds_float4_kernel<<<1, 32, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
