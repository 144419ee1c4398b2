// The lower lanes write for the upper ones and wait for the whole warp inside the branch,
// where the upper lanes never come.
#include <cuda_runtime.h>

__global__ void absent_lane_syncwarp_kernel(const float* x, float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = 0.0f;
  if (threadIdx.x < 16) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp();  // FAULT
  }
  __syncthreads();
  out[threadIdx.x] = tile[31 - threadIdx.x];
}

extern "C" int absent_lane_syncwarp(const float* x, float* out, cudaStream_t stream) {
  absent_lane_syncwarp_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
