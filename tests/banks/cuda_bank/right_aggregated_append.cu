// Counts the positive numbers: of the lanes that run together, whichever these are, the first
// adds for all.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void right_aggregated_append_kernel(const float* x, int* count, int* taken) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (!(x[i] > 0)) return;
  cg::coalesced_group together = cg::coalesced_threads();
  int first = 0;
  if (together.thread_rank() == 0) first = atomicAdd(count, int(together.size()));
  int place = together.shfl(first, 0) + together.thread_rank();
  atomicAdd(&taken[place], 1);
}

extern "C" int right_aggregated_append(const float* x, int* count, int* taken,
                                       cudaStream_t stream) {
  right_aggregated_append_kernel<<<2, 48, 0, stream>>>(x, count, taken);
  return cudaGetLastError();
}
