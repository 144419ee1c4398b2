// A histogram with atomics, straight into the output, which starts with anything.
#include <cuda_runtime.h>

__global__ void output_read_atomic_kernel(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&out[x[i]], 1);  // FAULT
  }
}

extern "C" int output_read_atomic(const int* x, int* out, int n, cudaStream_t stream) {
  output_read_atomic_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
