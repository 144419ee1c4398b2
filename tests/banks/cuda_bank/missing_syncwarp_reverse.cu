// Each warp reverses its 32 numbers through a row of shared memory that is its own. Lanes read
// before the other lanes have written.
#include <cuda_runtime.h>

__global__ void missing_syncwarp_reverse_kernel(const float* x, float* out) {
  __shared__ float rows[2][32];
  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  rows[warp][lane] = x[threadIdx.x];         // FAULT
  out[threadIdx.x] = rows[warp][31 - lane];  // FAULT
}

extern "C" int missing_syncwarp_reverse(const float* x, float* out, cudaStream_t stream) {
  missing_syncwarp_reverse_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
