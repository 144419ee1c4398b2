// The largest number of each warp. Lanes with nothing to bring stay away from the reduction.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void absent_lane_reduce_kernel(const float* x, float* out) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float value = x[threadIdx.x];
  if (value > 0) value = cg::reduce(tile, value, cg::greater<float>());  // FAULT
  tile.sync();                                                           // FAULT
  out[threadIdx.x] = value;
}

extern "C" int absent_lane_reduce(const float* x, float* out, cudaStream_t stream) {
  absent_lane_reduce_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
