// Adds x and y, both reversed, through one tile. Nothing keeps a quick thread from refilling
// the tile while a slow one still reads x from it.
#include <cuda_runtime.h>

__global__ void race_refill_kernel(const float* x, const float* y, float* out) {
  __shared__ float tile[128];
  int thread = threadIdx.x;
  tile[thread] = x[thread];
  __syncthreads();
  float sum = tile[127 - thread];  // FAULT
  tile[thread] = y[thread];        // FAULT
  __syncthreads();
  out[thread] = sum + tile[127 - thread];
}

extern "C" int race_refill(const float* x, const float* y, float* out, cudaStream_t stream) {
  race_refill_kernel<<<1, 128, 0, stream>>>(x, y, out);
  return cudaGetLastError();
}
