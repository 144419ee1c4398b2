// Counts the positive numbers in a variable of the launcher, which lives in the CPU's memory,
// where no kernel can reach.
#include <cuda_runtime.h>

__global__ void no_address_host_kernel(const float* x, float* out, int* counter) {
  out[threadIdx.x] = fabsf(x[threadIdx.x]);
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(counter, 1);  // FAULT
  }
}

extern "C" int no_address_host(const float* x, float* out, int n, cudaStream_t stream) {
  int counter = 0;
  no_address_host_kernel<<<1, n, 0, stream>>>(x, out, &counter);
  return cudaGetLastError();
}
