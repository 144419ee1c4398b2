// Sums up to 64 numbers. The threads past the end leave their places of the tile as they were,
// and all places are summed.
#include <cuda_runtime.h>

__global__ void shared_uninitialised_tail_kernel(const float* x, float* out, int n) {
  __shared__ float tile[64];
  int thread = threadIdx.x;
  if (thread < n) { tile[thread] = x[thread]; }
  __syncthreads();
  if (thread == 0) {
    float sum = 0.0f;
    for (int i = 0; i < 64; i++) {
      sum += tile[i];  // FAULT
    }
    out[0] = sum;
  }
}

extern "C" int shared_uninitialised_tail(const float* x, float* out, int n,
                                         cudaStream_t stream) {
  shared_uninitialised_tail_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
