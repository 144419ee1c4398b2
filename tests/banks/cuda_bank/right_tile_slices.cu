// Each group of 8 numbers in reverse, through a slice of shared memory that one tile of 8
// lanes has for itself.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void right_tile_slices_kernel(const float* x, float* out) {
  __shared__ float slices[64];
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::tiled_partition<32>(block));
  float* slice = slices + block.thread_rank() / 8 * 8;
  for (int round = 0; round < 2; ++round) {
    const float* group = x + (blockIdx.x * 2 + round) * 64 + block.thread_rank() / 8 * 8;
    slice[tile.thread_rank()] = group[tile.thread_rank()];
    tile.sync();
    out[group - x + tile.thread_rank()] = slice[7 - tile.thread_rank()];
    tile.sync();
  }
}

extern "C" int right_tile_slices(const float* x, float* out, int blocks, cudaStream_t stream) {
  right_tile_slices_kernel<<<blocks, dim3(16, 4), 0, stream>>>(x, out);
  return cudaGetLastError();
}
