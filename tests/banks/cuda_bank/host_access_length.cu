// Copies as many numbers as a tensor says. The launcher asks the tensor itself.
#include <cuda_runtime.h>

__global__ void host_access_length_kernel(const float* x, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x];
}

extern "C" int host_access_length(const float* x, const int* length, float* out,
                                  cudaStream_t stream) {
  int n = length[0];  // FAULT
  host_access_length_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
