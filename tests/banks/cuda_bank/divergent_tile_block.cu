// A sum over a block, warp by warp. The first warp waits for the block, the others only for
// their own tile.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void divergent_tile_block_kernel(const float* x, float* out) {
  __shared__ float sums[2];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  float sum = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>());
  if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;
  if (tile.meta_group_rank() == 0) {
    block.sync();  // FAULT
    if (tile.thread_rank() == 0) out[0] = sums[0] + sums[1];
  } else {
    tile.sync();
  }
}

extern "C" int divergent_tile_block(const float* x, float* out, cudaStream_t stream) {
  divergent_tile_block_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
