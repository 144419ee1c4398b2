// Which lanes of each tile of 16 hold a positive number, and how a value wanders: votes and
// shuffles stay in their tile.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void right_tile_votes_kernel(const int* x, int* out, int* out_moved) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, value = x[i];
  int votes = tile.ballot(value > 3);
  out[4 * i] = votes;
  out[4 * i + 1] = tile.any(value > 6) + 2 * tile.all(value > 0);
  out[4 * i + 2] = cg::reduce(tile, value, cg::bit_or<int>()) +
                   100 * cg::reduce(tile, value, cg::less<int>());
  out[4 * i + 3] = cg::reduce(tile, value, [](int a, int b) { return a * b % 1009; });
  out_moved[3 * i] = tile.shfl_up(value, 3);
  out_moved[3 * i + 1] = tile.shfl_xor(value, 5);
  out_moved[3 * i + 2] = tile.shfl(value, 18);  // of lane 2: ranks go round
}

extern "C" int right_tile_votes(const int* x, int* out, int* out_moved, int blocks,
                                cudaStream_t stream) {
  right_tile_votes_kernel<<<blocks, 64, 0, stream>>>(x, out, out_moved);
  return cudaGetLastError();
}
