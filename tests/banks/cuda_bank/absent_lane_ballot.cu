// Counts the positive numbers of a warp and tells the count to all lanes. The vote is taken
// inside a branch that only some enter.
#include <cuda_runtime.h>

__global__ void absent_lane_ballot_kernel(const float* x, int* out) {
  int count = 0;
  if (x[threadIdx.x] > 0.0f) {
    count = __popc(__ballot_sync(0xffffffff, 1));  // FAULT
  }
  out[threadIdx.x] = __shfl_sync(0xffffffff, count, 0);
}

extern "C" int absent_lane_ballot(const float* x, int* out, cudaStream_t stream) {
  absent_lane_ballot_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
