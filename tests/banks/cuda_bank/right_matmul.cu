// A matrix product in tiles of 8 x 8, with two tiles in one declaration, for sizes that need
// not be multiples of 8.
#include <cuda_runtime.h>

__global__ void right_matmul_kernel(const float* a, const float* b, float* out, int rows,
                                    int inner, int columns) {
  __shared__ float tile_a[8][8], tile_b[8][8];
  int row = blockIdx.y * 8 + threadIdx.y;
  int column = blockIdx.x * 8 + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < inner; start += 8) {
    int k = start + threadIdx.x;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k < inner ? a[row * inner + k] : 0.0f;
    k = start + threadIdx.y;
    tile_b[threadIdx.y][threadIdx.x] =
        k < inner && column < columns ? b[k * columns + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 8; i++) { sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x]; }
    __syncthreads();
  }
  if (row < rows && column < columns) { out[row * columns + column] = sum; }
}

extern "C" int right_matmul(const float* a, const float* b, float* out, int rows, int inner,
                            int columns, cudaStream_t stream) {
  dim3 grid((columns + 7) / 8, (rows + 7) / 8);
  right_matmul_kernel<<<grid, dim3(8, 8), 0, stream>>>(a, b, out, rows, inner, columns);
  return cudaGetLastError();
}
