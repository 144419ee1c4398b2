// Each warp adds up its rows, reversed, through shared memory. A lane may write the next row
// while another lane still reads this one.
#include <cuda_runtime.h>

__global__ void missing_syncwarp_refill_kernel(const float* x, float* out, int rows) {
  __shared__ float slices[64];
  float* slice = slices + threadIdx.x / 32 * 32;
  int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int row = 0; row < rows; row++) {
    slice[lane] = x[row * 64 + threadIdx.x];  // FAULT
    __syncwarp();
    sum += slice[31 - lane];  // FAULT
  }
  out[threadIdx.x] = sum;
}

extern "C" int missing_syncwarp_refill(const float* x, float* out, int rows,
                                       cudaStream_t stream) {
  missing_syncwarp_refill_kernel<<<1, 64, 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
