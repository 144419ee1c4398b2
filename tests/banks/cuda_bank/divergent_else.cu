// Reverses the even places and zeroes the odd ones. Both branches have a barrier, but these
// are two barriers.
#include <cuda_runtime.h>

__global__ void divergent_else_kernel(const float* x, float* out) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  if (thread % 2 == 0) {
    tile[thread] = x[thread];
    __syncthreads();  // FAULT
  } else {
    tile[thread] = 0.0f;
    __syncthreads();  // FAULT
  }
  out[thread] = tile[63 - thread];
}

extern "C" int divergent_else(const float* x, float* out, cudaStream_t stream) {
  divergent_else_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
