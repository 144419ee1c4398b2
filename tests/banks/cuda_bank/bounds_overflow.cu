// Copies one row of a large matrix. The row's number times its length does not fit into an
// int, and the offset becomes negative.
#include <cuda_runtime.h>

__global__ void bounds_overflow_kernel(const float* x, float* out, int row, int row_length) {
  int offset = row * row_length;
  out[threadIdx.x] = x[offset + static_cast<int>(threadIdx.x)];  // FAULT
}

extern "C" int bounds_overflow(const float* x, float* out, int row, int row_length,
                               cudaStream_t stream) {
  bounds_overflow_kernel<<<1, 32, 0, stream>>>(x, out, row, row_length);
  return cudaGetLastError();
}
