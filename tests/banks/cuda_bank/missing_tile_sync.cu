// Each group of 8 numbers in reverse, through a slice for each tile. Its lanes do not wait for
// each other.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void missing_tile_sync_kernel(const float* x, float* out) {
  __shared__ float slices[64];
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  float* slice = slices + threadIdx.x / 8 * 8;
  slice[tile.thread_rank()] = x[threadIdx.x];        // FAULT
  out[threadIdx.x] = slice[7 - tile.thread_rank()];  // FAULT
}

extern "C" int missing_tile_sync(const float* x, float* out, cudaStream_t stream) {
  missing_tile_sync_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
