// Each row of a warp, less its mean, over its largest magnitude: reductions over a tile.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

template <unsigned size>
__device__ float right_tiles_sum(const cg::thread_block_tile<size>& tile, float value) {
  for (int distance = tile.size() / 2; distance > 0; distance /= 2)
    value += tile.shfl_down(value, distance);
  return tile.shfl(value, 0);
}

__global__ void right_tiles_kernel(const float* x, float* out, int rows) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
  if (row >= rows) return;
  float value = x[row * 32 + tile.thread_rank()];
  value -= right_tiles_sum<32>(tile, value) / tile.num_threads();
  float largest = cg::reduce(tile, fabsf(value), cg::greater<float>());
  out[row * 32 + tile.thread_rank()] = value / largest;
}

extern "C" int right_tiles(const float* x, float* out, int rows, cudaStream_t stream) {
  right_tiles_kernel<<<(rows + 3) / 4, 128, 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
