// Each warp reverses rows through a slice of shared memory of its own: __syncwarp is enough,
// before the reads and before the next writes.
#include <cuda_runtime.h>

__global__ void right_warp_slices_kernel(const float* x, float* out, int rows) {
  __shared__ float slices[3][32];
  float* slice = slices[threadIdx.x / 32];
  int lane = threadIdx.x % 32;
  // the warps go round a different number of times
  for (int row = threadIdx.x / 32; row < rows; row += 3) {
    slice[lane] = x[row * 32 + lane];
    __syncwarp();
    out[row * 32 + lane] = slice[31 - lane];
    __syncwarp();
  }
}

extern "C" int right_warp_slices(const float* x, float* out, int rows, cudaStream_t stream) {
  right_warp_slices_kernel<<<1, 96, 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
