// A row of a strided matrix times a factor, with all that the kernel needs in one struct.
#include <cuda_runtime.h>

struct RightStructParameters {
  const float* x;  // (rows, columns), not necessarily contiguous
  float* out;      // (rows, columns)
  int64_t row_stride;
  int64_t column_stride;
  int rows;
  int columns;
  float factor;
};

__global__ void right_struct_kernel(RightStructParameters p) {
  for (int column = threadIdx.x; column < p.columns; column += blockDim.x) {
    p.out[blockIdx.x * p.columns + column] =
        p.factor * p.x[blockIdx.x * p.row_stride + column * p.column_stride];
  }
}

extern "C" int right_struct(RightStructParameters parameters, cudaStream_t stream) {
  right_struct_kernel<<<parameters.rows, 32, 0, stream>>>(parameters);
  return cudaGetLastError();
}
