// Reverses each block's numbers. In the last block the threads past the end leave, and the
// others wait for them at the barrier.
#include <cuda_runtime.h>

__global__ void divergent_return_kernel(const float* x, float* out, int n) {
  __shared__ float tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= n) return;
  tile[threadIdx.x] = x[i];
  __syncthreads();  // FAULT
  int length = min(64, n - static_cast<int>(blockIdx.x) * 64);
  out[i] = tile[length - 1 - threadIdx.x];
}

extern "C" int divergent_return(const float* x, float* out, int n, cudaStream_t stream) {
  divergent_return_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
