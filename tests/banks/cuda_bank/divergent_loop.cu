// Running sums of a block's numbers. The last round has fewer numbers than threads, and the
// barrier is inside the loop.
#include <cuda_runtime.h>

__global__ void divergent_loop_kernel(const float* x, float* out, int n) {
  __shared__ float sums[64];
  int thread = threadIdx.x;
  sums[thread] = 0.0f;
  for (int i = thread; i < n; i += 64) {
    sums[thread] += x[i];
    __syncthreads();  // FAULT
  }
  out[thread] = sums[thread];
}

extern "C" int divergent_loop(const float* x, float* out, int n, cudaStream_t stream) {
  divergent_loop_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
