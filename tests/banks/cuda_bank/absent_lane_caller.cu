// Adds neighbours in pairs. All 32 lanes call, but the mask names only the lower half.
#include <cuda_runtime.h>

__global__ void absent_lane_caller_kernel(const float* x, float* out) {
  float value = x[threadIdx.x];
  out[threadIdx.x] = value + __shfl_xor_sync(0x0000ffff, value, 1);  // FAULT
}

extern "C" int absent_lane_caller(const float* x, float* out, cudaStream_t stream) {
  absent_lane_caller_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
