// The halves of a warp work by themselves and meet one another more or less often; then the
// whole warp meets.
#include <cuda_runtime.h>

__global__ void right_half_warps_kernel(const float* x, float* out) {
  __shared__ float row[32], factor;
  int lane = threadIdx.x;
  if (lane == 5) factor = 2.0f;
  __syncwarp();
  float sum = x[lane];
  if (lane < 16) {
    row[lane] = sum;
    __syncwarp(0x0000ffff);
    sum = row[lane ^ 15] * factor;
  } else {
    for (int distance = 8; distance > 0; distance /= 2) {
      row[lane] = sum;
      __syncwarp(0xffff0000);
      sum += row[lane ^ distance];
      __syncwarp(0xffff0000);
    }
    sum *= factor;
  }
  __syncwarp();
  if (lane == 0) factor = 3.0f;
  __syncwarp();
  out[lane] = sum * factor;
}

extern "C" int right_half_warps(const float* x, float* out, cudaStream_t stream) {
  right_half_warps_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
