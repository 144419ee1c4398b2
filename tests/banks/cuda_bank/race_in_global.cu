// Shifts the numbers of x by 32 places, in place: a thread's number may be overwritten before
// its neighbour has read it.
#include <cuda_runtime.h>

__global__ void race_in_global_kernel(float* x) {
  int thread = threadIdx.x;
  x[thread + 32] = x[thread];  // FAULT
}

extern "C" int race_in_global(float* x, cudaStream_t stream) {
  race_in_global_kernel<<<1, 96, 0, stream>>>(x);
  return cudaGetLastError();
}
