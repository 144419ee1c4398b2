// Each group of 8 numbers in reverse. The lanes wait for those of their tile, but the tile is
// too small.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void missing_tile_sync_small_kernel(const float* x, float* out) {
  __shared__ float numbers[64];
  auto tile = cg::tiled_partition<4>(cg::this_thread_block());
  numbers[threadIdx.x] = x[threadIdx.x];  // FAULT
  tile.sync();
  out[threadIdx.x] = numbers[threadIdx.x ^ 7];  // FAULT
}

extern "C" int missing_tile_sync_small(const float* x, float* out, cudaStream_t stream) {
  missing_tile_sync_small_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
