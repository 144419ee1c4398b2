// Counts the steps of the Collatz sequence down to 1. From 0 it never gets there, and the loop
// touches no memory.
#include <cuda_runtime.h>

__global__ void no_end_while_kernel(const int* x, int* out) {
  int value = x[threadIdx.x];
  int steps = 0;
  while (value != 1) {                                   // FAULT
    value = value % 2 == 0 ? value / 2 : 3 * value + 1;  // FAULT
    steps++;                                             // FAULT
  }
  out[threadIdx.x] = steps;
}

extern "C" int no_end_while(const int* x, int* out, int n, cudaStream_t stream) {
  no_end_while_kernel<<<1, n, 0, stream>>>(x, out);
  return cudaGetLastError();
}
