// Transposes a matrix in tiles of 16 x 16. The tile's rows are one longer, so that reading a
// column meets each memory bank once.
#include <cuda_runtime.h>
#define RIGHT_TRANSPOSE_TILE 16

__global__ void right_transpose_kernel(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[RIGHT_TRANSPOSE_TILE][RIGHT_TRANSPOSE_TILE + 1];
  int row = blockIdx.y * RIGHT_TRANSPOSE_TILE + threadIdx.y;
  int column = blockIdx.x * RIGHT_TRANSPOSE_TILE + threadIdx.x;
  if (row < rows && column < columns)
    tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  __syncthreads();
  row = blockIdx.x * RIGHT_TRANSPOSE_TILE + threadIdx.y;
  column = blockIdx.y * RIGHT_TRANSPOSE_TILE + threadIdx.x;
  if (row < columns && column < rows)
    out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

extern "C" int right_transpose(const float* x, float* out, int rows, int columns,
                               cudaStream_t stream) {
  const int tile = RIGHT_TRANSPOSE_TILE;
  dim3 grid((columns + tile - 1) / tile, (rows + tile - 1) / tile), block(tile, tile);
  right_transpose_kernel<<<grid, block, 0, stream>>>(x, out, rows, columns);
  return cudaGetLastError();
}
