#include <cuda_runtime.h>

// out[i] = a[i] + b[i] for i = 0 … n - 1, with one thread for each element. The last block may
// have more threads than there are elements left.
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  // BEGIN SOLUTION 6.1
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
  // END SOLUTION
}

// n: 1 or more. Returns 0, or the error of the launch.
extern "C" int add(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
  int threads = 256;
  // BEGIN SOLUTION 6.1 STUB: int blocks = 1;  // too few for a long vector: change it
  int blocks = (n + threads - 1) / threads;
  // END SOLUTION
  add_kernel<<<blocks, threads, 0, stream>>>(a, b, out, n);
  return cudaGetLastError();
}
