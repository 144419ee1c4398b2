// The sum of neighbours, through shared memory. Only threads with a neighbour wait.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void divergent_block_sync_kernel(const float* x, float* out, int n) {
  __shared__ float tile[64];
  auto block = cg::this_thread_block();
  tile[threadIdx.x] = x[threadIdx.x];
  if (block.thread_rank() + 1 < n) {
    block.sync();  // FAULT
    out[threadIdx.x] = tile[threadIdx.x] + tile[threadIdx.x + 1];
  } else {
    out[threadIdx.x] = tile[threadIdx.x];
  }
}

extern "C" int divergent_block_sync(const float* x, float* out, int n, cudaStream_t stream) {
  divergent_block_sync_kernel<<<1, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
