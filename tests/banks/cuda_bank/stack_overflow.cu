// Follows links until one that leads to itself, by recursion. Two of them lead to each other.
#include <cuda_runtime.h>

__device__ int stack_overflow_steps(const int* next, int i) {
  if (next[i] == i) return 0;                             // FAULT
  return 1 + stack_overflow_steps(next, next[i]) % 1000;  // FAULT
}

__global__ void stack_overflow_kernel(const int* next, int* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = stack_overflow_steps(next, threadIdx.x);
}

extern "C" int stack_overflow(const int* next, int* out, int n, cudaStream_t stream) {
  stack_overflow_kernel<<<1, 32, 0, stream>>>(next, out, n);
  return cudaGetLastError();
}
