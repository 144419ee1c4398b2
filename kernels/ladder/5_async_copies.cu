// Rung 5: while a warp computes, its next tiles are on their way into shared memory. A warp
// waits for a load into a register at the first use. For these copies it waits several tiles
// later, when it comes back to their stage.
#include <cuda_runtime.h>

#include "attend_staged.cuh"

// Grid: (num_seqs, num_kv_heads).
__global__ void async_copies_kernel(PagedAttentionParams params) {
  extern __shared__ uint4 memory[];  // 16 bytes each, so that a copy may begin at any of them
  TileState state;
  int seq = blockIdx.x, kv_head = blockIdx.y;
  int num_tiles = (params.context_lens[seq] + tile_size - 1) / tile_size;
  attend_staged(state, *reinterpret_cast<StagedTiles*>(memory), params, seq, kv_head, 0,
                num_tiles);
  if (threadIdx.x < 32) write_out(state, out_row(params, seq, kv_head));
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(
      async_copies_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(StagedTiles));
  if (error != cudaSuccess) return error;
  dim3 grid(params.num_seqs, params.num_kv_heads);
  async_copies_kernel<<<grid, num_warps * 32, sizeof(StagedTiles), stream>>>(params);
  return cudaGetLastError();
}
