// Doubles a matrix with a thread for each element of a row of blocks. A block of 64 x 32
// threads is larger than any GPU takes.
#include <cuda_runtime.h>

__global__ void bad_launch_threads_kernel(const float* x, float* out, int n) {
  int i = threadIdx.y * blockDim.x + threadIdx.x;
  if (i < n) { out[i] = 2.0f * x[i]; }
}

extern "C" int bad_launch_threads(const float* x, float* out, int n, cudaStream_t stream) {
  dim3 threads(64, 32);
  bad_launch_threads_kernel<<<1, threads, 0, stream>>>(x, out, n);  // FAULT
  return cudaGetLastError();
}
