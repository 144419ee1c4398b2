// Running sums of a block's numbers. The offset should double each time, but it starts with 0
// and stays there.
#include <cuda_runtime.h>

__global__ void no_end_barriers_kernel(const float* x, float* out) {
  __shared__ float sums[64];
  int thread = threadIdx.x;
  sums[thread] = x[thread];
  __syncthreads();
  for (int offset = 0; offset < 64; offset *= 2) {                   // FAULT
    float before = thread >= offset ? sums[thread - offset] : 0.0f;  // FAULT
    __syncthreads();                                                 // FAULT
    sums[thread] += before;                                          // FAULT
    __syncthreads();                                                 // FAULT
  }
  out[thread] = sums[thread];
}

extern "C" int no_end_barriers(const float* x, float* out, cudaStream_t stream) {
  no_end_barriers_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
