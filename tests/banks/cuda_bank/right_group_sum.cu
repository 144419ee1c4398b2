// Sums of a block, and of each four of its threads, by one function that takes any group.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__device__ float right_group_sum_of(cg::thread_group group, float* temporary, float value) {
  int rank = group.thread_rank();
  for (int half = group.size() / 2; half > 0; half /= 2) {
    temporary[rank] = value;
    cg::sync(group);
    if (rank < half) value += temporary[rank + half];
    group.sync();
  }
  return value;
}

__global__ void right_group_sum_kernel(const float* x, float* out, float* out_fours) {
  extern __shared__ float right_group_sum_temporary[];
  auto block = cg::this_thread_block();
  auto four = cg::tiled_partition(block, 4);
  float value = x[block.group_index().x * block.size() + block.thread_rank()];
  int number = block.thread_rank() / 4;
  float of_four = right_group_sum_of(four, right_group_sum_temporary + number * 4, value);
  if (four.thread_rank() == 0) out_fours[blockIdx.x * (block.size() / 4) + number] = of_four;
  float sum = right_group_sum_of(block, right_group_sum_temporary, value);
  if (block.thread_rank() == 0) out[blockIdx.x] = sum;
}

extern "C" int right_group_sum(const float* x, float* out, float* out_fours, int blocks,
                               int threads, cudaStream_t stream) {
  right_group_sum_kernel<<<blocks, threads, threads * sizeof(float), stream>>>(x, out,
                                                                               out_fours);
  return cudaGetLastError();
}
