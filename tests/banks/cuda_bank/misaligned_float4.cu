// Adds up a row of numbers, four at once. Rows of 6 numbers do not begin at multiples of four.
#include <cuda_runtime.h>

__global__ void misaligned_float4_kernel(const float* x, float4* sums, int row_length) {
  const float4* row = reinterpret_cast<const float4*>(x + threadIdx.x * row_length);
  sums[threadIdx.x] = row[0];  // FAULT
}

extern "C" int misaligned_float4(const float* x, float* sums, int row_length,
                                 cudaStream_t stream) {
  misaligned_float4_kernel<<<1, 4, 0, stream>>>(x, reinterpret_cast<float4*>(sums),
                                                row_length);
  return cudaGetLastError();
}
