// Doubles numbers in a block of 1025 threads, which is not launched. The launcher says 0, all
// is well, without asking.
#include <cuda_runtime.h>

__global__ void bad_launch_swallowed_kernel(const float* x, float* y) {
  y[threadIdx.x] = 2.0f * x[threadIdx.x];
}

extern "C" int bad_launch_swallowed(const float* x, float* y, int n, cudaStream_t stream) {
  bad_launch_swallowed_kernel<<<  // FAULT
      1, n, 0, stream             // FAULT
      >>>(x, y);                  // FAULT
  return 0;
}
