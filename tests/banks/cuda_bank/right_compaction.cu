// Moves the positive numbers of each block to the front of its part, in their order: votes
// give each lane its place.
#include <cuda_runtime.h>

__global__ void right_compaction_kernel(const float* x, float* out, int* out_counts) {
  __shared__ int counts[2];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float value = x[blockIdx.x * 64 + threadIdx.x];
  unsigned positive = __ballot_sync(0xffffffff, value > 0.0f);
  if (lane == 0) counts[warp] = __popc(positive);
  __syncthreads();
  int before = __popc(positive & ((1u << lane) - 1)) + (warp == 1 ? counts[0] : 0);
  int total = counts[0] + counts[1];
  float* part = out + blockIdx.x * 64;
  if (value > 0.0f) part[before] = value;
  if (threadIdx.x >= total) part[threadIdx.x] = 0.0f;
  if (threadIdx.x == 0) out_counts[blockIdx.x] = total;
}

extern "C" int right_compaction(const float* x, float* out, int* out_counts, int blocks,
                                cudaStream_t stream) {
  right_compaction_kernel<<<blocks, 64, 0, stream>>>(x, out, out_counts);
  return cudaGetLastError();
}
