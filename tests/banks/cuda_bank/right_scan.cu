// Running sums of a block's numbers after Hillis and Steele: two buffers, and one barrier for
// each doubling of the offset.
#include <cuda_runtime.h>

__global__ void right_scan_kernel(const int* x, int* out) {
  __shared__ int sums[2][128];
  int thread = threadIdx.x, from = 0;
  sums[from][thread] = x[blockIdx.x * 128 + thread];
  __syncthreads();
  for (int offset = 1; offset < 128; offset *= 2) {
    int before = thread >= offset ? sums[from][thread - offset] : 0;
    sums[1 - from][thread] = sums[from][thread] + before;
    from = 1 - from;
    __syncthreads();
  }
  out[blockIdx.x * 128 + thread] = sums[from][thread];
}

extern "C" int right_scan(const int* x, int* out, int blocks, cudaStream_t stream) {
  right_scan_kernel<<<blocks, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
