// Sums each warp of a block of 48 threads. The second warp has 16 lanes, and the first step
// reads from the 16 that do not exist.
#include <cuda_runtime.h>

__global__ void absent_lane_partial_kernel(const float* x, float* out) {
  float sum = x[threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);  // FAULT
  }
  out[threadIdx.x] = sum;
}

extern "C" int absent_lane_partial(const float* x, float* out, int threads,
                                   cudaStream_t stream) {
  absent_lane_partial_kernel<<<1, threads, 0, stream>>>(x, out);
  return cudaGetLastError();
}
