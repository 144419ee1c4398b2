// Sums 32 numbers as old texts do it: volatile, and the lanes of a warp trusted to keep step.
// Since Volta they need not.
#include <cuda_runtime.h>

__global__ void missing_syncwarp_volatile_kernel(const float* x, float* out) {
  __shared__ volatile float sums[32];
  int lane = threadIdx.x;
  sums[lane] = x[lane];
  __syncwarp();
  if (lane < 16) {
    sums[lane] += sums[lane + 16];               // FAULT
    if (lane < 8) sums[lane] += sums[lane + 8];  // FAULT
    if (lane < 4) sums[lane] += sums[lane + 4];  // FAULT
    if (lane < 2) sums[lane] += sums[lane + 2];  // FAULT
    if (lane < 1) sums[lane] += sums[lane + 1];  // FAULT
  }
  if (lane == 0) { out[0] = sums[0]; }
}

extern "C" int missing_syncwarp_volatile(const float* x, float* out, cudaStream_t stream) {
  missing_syncwarp_volatile_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
