// The sum of each 16 numbers, of which the last may be missing: their lanes do not come to the
// shuffle.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void absent_lane_tile_kernel(const float* x, float* out, int n) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  float sum = 0.0f;
  if (threadIdx.x < n) {
    sum = x[threadIdx.x];
    // FAULT
    for (int distance = 8; distance > 0; distance /= 2) sum += tile.shfl_xor(sum, distance);
  }
  tile.sync();  // FAULT
  out[threadIdx.x] = sum;
}

extern "C" int absent_lane_tile(const float* x, float* out, int n, cudaStream_t stream) {
  absent_lane_tile_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
