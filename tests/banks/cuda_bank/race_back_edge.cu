// Each thread sums the numbers up to its own place, tile by tile. The loop goes round to the
// next fill without a barrier after the reads.
#include <cuda_runtime.h>

__global__ void race_back_edge_kernel(const float* x, float* out, int n) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < n; start += 64) {
    tile[thread] = x[start + thread];  // FAULT
    __syncthreads();
    for (int other = 0; other <= thread; other++) {
      sum += tile[other];  // FAULT
    }
  }
  out[thread] = sum;
}

extern "C" int race_back_edge(const float* x, float* out, int n, cudaStream_t stream) {
  race_back_edge_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
