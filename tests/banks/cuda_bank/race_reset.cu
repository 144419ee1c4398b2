// Counts the positive numbers of a block. Thread 0 sets the counter to zero and goes on at
// once, and so do the others.
#include <cuda_runtime.h>

__global__ void race_reset_kernel(const float* x, int* out) {
  __shared__ int counter;
  if (threadIdx.x == 0) {
    counter = 0;  // FAULT
  }
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(&counter, 1);  // FAULT
  }
  __syncthreads();
  if (threadIdx.x == 0) { out[0] = counter; }
}

extern "C" int race_reset(const float* x, int* out, cudaStream_t stream) {
  race_reset_kernel<<<1, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
