// Reverses the first `count` numbers. Only the threads that take part come to the barrier.
#include <cuda_runtime.h>

__global__ void divergent_branch_kernel(const float* x, float* out, int count) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  if (thread < count) {
    tile[thread] = x[thread];
    __syncthreads();  // FAULT
    out[thread] = tile[count - 1 - thread];
  } else {
    out[thread] = x[thread];
  }
}

extern "C" int divergent_branch(const float* x, float* out, int count, cudaStream_t stream) {
  divergent_branch_kernel<<<1, 64, 0, stream>>>(x, out, count);
  return cudaGetLastError();
}
