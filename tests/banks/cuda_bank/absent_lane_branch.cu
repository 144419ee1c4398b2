// Half a warp adds up its numbers, with a mask that promises the whole warp.
#include <cuda_runtime.h>

__global__ void absent_lane_branch_kernel(const float* x, float* out) {
  float sum = x[threadIdx.x];
  if (threadIdx.x < 16) {
    for (int offset = 8; offset > 0; offset /= 2) {
      sum += __shfl_down_sync(0xffffffff, sum, offset);  // FAULT
    }
  }
  out[threadIdx.x] = sum;
}

extern "C" int absent_lane_branch(const float* x, float* out, cudaStream_t stream) {
  absent_lane_branch_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
