// Sums 40 numbers. The threads past the end have returned, and the last warp's sum takes in
// what their lanes would have held.
#include <cuda_runtime.h>

__global__ void absent_lane_returned_kernel(const float* x, float* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) { return; }
  float sum = x[i];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, offset);  // FAULT
  }
  if (threadIdx.x % 32 == 0) { atomicAdd(total, sum); }
}

extern "C" int absent_lane_returned(const float* x, float* total, int n, cudaStream_t stream) {
  absent_lane_returned_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, total, n);
  return cudaGetLastError();
}
