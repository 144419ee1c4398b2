// Counts the positive numbers of a block with atomics, and reads the counter before all have
// added to it.
#include <cuda_runtime.h>

__global__ void race_early_result_kernel(const float* x, int* out) {
  __shared__ int counter;
  if (threadIdx.x == 0) { counter = 0; }
  __syncthreads();
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(&counter, 1);  // FAULT
  }
  if (threadIdx.x == 127) {
    out[0] = counter;  // FAULT
  }
}

extern "C" int race_early_result(const float* x, int* out, cudaStream_t stream) {
  race_early_result_kernel<<<1, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
