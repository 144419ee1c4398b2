// Divides each number by the sum of all. The barrier stands before each step of the tree, so
// none follows the last step.
#include <cuda_runtime.h>

__global__ void race_reduction_tail_kernel(const float* x, float* out) {
  __shared__ float sums[128];
  int thread = threadIdx.x;
  sums[thread] = x[thread];
  for (int distance = 64; distance > 0; distance /= 2) {
    __syncthreads();
    if (thread < distance) {
      sums[thread] += sums[thread + distance];  // FAULT
    }
  }
  out[thread] = x[thread] / sums[0];  // FAULT
}

extern "C" int race_reduction_tail(const float* x, float* out, cudaStream_t stream) {
  race_reduction_tail_kernel<<<1, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
