// Multiplies weights and values. On a GPU weights[16] is the first of the values, and nobody
// notices.
#include <cuda_runtime.h>

__global__ void shared_bounds_next_array_kernel(const float* x, float* out) {
  __shared__ float weights[16];
  __shared__ float values[16];
  int thread = threadIdx.x;
  if (thread < 16) {
    weights[thread] = 1.0f / (1 + thread);
    values[thread] = x[thread];
  }
  __syncthreads();
  if (thread <= 16) {
    out[thread] = weights[thread] * values[thread % 16];  // FAULT
  }
}

extern "C" int shared_bounds_next_array(const float* x, float* out, cudaStream_t stream) {
  shared_bounds_next_array_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}
