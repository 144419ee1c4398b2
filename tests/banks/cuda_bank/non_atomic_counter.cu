// Counts the positive numbers of a block. Threads that add at the same time lose each other's
// count.
#include <cuda_runtime.h>

__global__ void non_atomic_counter_kernel(const float* x, int* out) {
  __shared__ int counter;
  if (threadIdx.x == 0) { counter = 0; }
  __syncthreads();
  if (x[threadIdx.x] > 0.0f) {
    counter += 1;  // FAULT
  }
  __syncthreads();
  if (threadIdx.x == 0) { out[0] = counter; }
}

extern "C" int non_atomic_counter(const float* x, int* out, cudaStream_t stream) {
  non_atomic_counter_kernel<<<1, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
