// Clears a tile and reverses numbers through it. The loop that clears takes one step too many:
// <= for <.
#include <cuda_runtime.h>

__global__ void shared_bounds_long_kernel(const float* x, float* out) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  for (int i = thread; i <= 64; i += 64) {
    tile[i] = 0.0f;  // FAULT
  }
  tile[thread] += x[thread];
  __syncthreads();
  out[thread] = tile[63 - thread];
}

extern "C" int shared_bounds_long(const float* x, float* out, cudaStream_t stream) {
  shared_bounds_long_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
