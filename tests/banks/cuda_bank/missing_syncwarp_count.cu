// Each warp counts its positive numbers with atomics, and all its lanes read the count. They
// wait for the zero, but not for the counts.
#include <cuda_runtime.h>

__global__ void missing_syncwarp_count_kernel(const float* x, int* out) {
  __shared__ int counts[2];
  int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) { counts[warp] = 0; }
  __syncwarp();
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(&counts[warp], 1);  // FAULT
  }
  out[threadIdx.x] = counts[warp];  // FAULT
}

extern "C" int missing_syncwarp_count(const float* x, int* out, cudaStream_t stream) {
  missing_syncwarp_count_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
