// Each thread sums every step-th number. With a step of 0 the counter never advances.
#include <cuda_runtime.h>

__global__ void no_end_step_kernel(const float* x, float* out, int n, int step) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += step) {  // FAULT
    sum += x[i];                                 // FAULT
  }
  out[threadIdx.x] = sum;
}

extern "C" int no_end_step(const float* x, float* out, int n, int step, cudaStream_t stream) {
  no_end_step_kernel<<<1, 32, 0, stream>>>(x, out, n, step);
  return cudaGetLastError();
}
