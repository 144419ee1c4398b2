// Counts the positive numbers with atomics, in a counter that nobody has set to zero.
#include <cuda_runtime.h>

__global__ void shared_uninitialised_counter_kernel(const float* x, int* out) {
  __shared__ int counter;
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(&counter, 1);  // FAULT
  }
  __syncthreads();
  if (threadIdx.x == 0) { out[0] = counter; }
}

extern "C" int shared_uninitialised_counter(const float* x, int* out, cudaStream_t stream) {
  shared_uninitialised_counter_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
