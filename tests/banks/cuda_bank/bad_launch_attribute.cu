// Keeps a score of each token in dynamic shared memory. Above 48 KiB the kernel needs leave
// for it, which nobody asked for.
#include <cuda_runtime.h>

__global__ void bad_launch_attribute_kernel(const float* x, float* out, int n) {
  extern __shared__ float numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) { numbers[i] = x[i]; }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) { out[i] = numbers[n - 1 - i]; }
}

extern "C" int bad_launch_attribute(const float* x, float* out, int n, cudaStream_t stream) {
  bad_launch_attribute_kernel<<<1, 64, n * sizeof(float), stream>>>(x, out, n);  // FAULT
  return cudaGetLastError();
}
