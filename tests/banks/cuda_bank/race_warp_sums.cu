// Sums a block: each warp with shuffles, then thread 0 adds the sums of the warps. It does not
// wait for the other warps.
#include <cuda_runtime.h>

__global__ void race_warp_sums_kernel(const float* x, float* out) {
  __shared__ float warp_sums[4];
  int thread = threadIdx.x;
  float sum = x[blockIdx.x * 128 + thread];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, offset);
  }
  if (thread % 32 == 0) {
    warp_sums[thread / 32] = sum;  // FAULT
  }
  if (thread == 0) {
    for (int warp = 1; warp < 4; warp++) {
      sum += warp_sums[warp];  // FAULT
    }
    out[blockIdx.x] = sum;
  }
}

extern "C" int race_warp_sums(const float* x, float* out, int blocks, cudaStream_t stream) {
  race_warp_sums_kernel<<<blocks, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
