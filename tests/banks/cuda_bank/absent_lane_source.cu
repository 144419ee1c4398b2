// Half a warp shifts its numbers by one. The mask is right, but lane 15 reads from lane 16,
// which the mask leaves out.
#include <cuda_runtime.h>

__global__ void absent_lane_source_kernel(const float* x, float* out) {
  float value = x[threadIdx.x];
  if (threadIdx.x < 16) {
    value = __shfl_sync(0x0000ffff, value, threadIdx.x + 1);  // FAULT
  }
  out[threadIdx.x] = value;
}

extern "C" int absent_lane_source(const float* x, float* out, cudaStream_t stream) {
  absent_lane_source_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
