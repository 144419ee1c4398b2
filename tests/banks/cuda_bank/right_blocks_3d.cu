// Moves the axes of a tensor (x, y, z) -> (z, y, x), with blocks and a grid of three
// dimensions.
#include <cuda_runtime.h>

__global__ void right_blocks_3d_kernel(const float* x, float* out, int3 size) {
  int z = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int i = blockIdx.z * blockDim.z + threadIdx.z;
  if (i < size.x && y < size.y && z < size.z) {
    out[(z * size.y + y) * size.x + i] = x[(i * size.y + y) * size.z + z];
  }
}

extern "C" int right_blocks_3d(const float* x, float* out, int size_x, int size_y, int size_z,
                               cudaStream_t stream) {
  dim3 block(4, 3, 2);
  dim3 grid((size_z + 3) / 4, (size_y + 2) / 3, (size_x + 1) / 2);
  right_blocks_3d_kernel<<<grid, block, 0, stream>>>(x, out,
                                                     make_int3(size_x, size_y, size_z));
  return cudaGetLastError();
}
