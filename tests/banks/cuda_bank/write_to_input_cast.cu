// Scales numbers and, to save a buffer, leaves the result in the input too, past its const.
#include <cuda_runtime.h>

__global__ void write_to_input_cast_kernel(const float* x, float* out, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = x[i] * scale;
    const_cast<float*>(x)[i] = out[i];  // FAULT
  }
}

extern "C" int write_to_input_cast(const float* x, float* out, float scale, int n,
                                   cudaStream_t stream) {
  write_to_input_cast_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, out, scale, n);
  return cudaGetLastError();
}
