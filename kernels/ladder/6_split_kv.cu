// Rung 6: several blocks share one context. Each writes its part (o, m, l) to memory, and a
// second kernel combines the parts, as combine_result of lesson 04 does. So a few long
// sequences keep the whole card busy.
#include <cuda_runtime.h>

#include "attend_staged.cuh"
#include "combine_parts.cuh"

// Grid: (num_seqs, num_kv_heads, num_splits).
//   part_o: (num_splits, num_seqs, num_q_heads, head_size), divided by l
//   part_m, part_l: (num_splits, num_seqs, num_q_heads)
__global__ void split_kernel(PagedAttentionParams params, float* part_o, float* part_m,
                             float* part_l) {
  extern __shared__ uint4 memory[];  // 16 bytes each, so that a copy may begin at any of them
  TileState state;
  int seq = blockIdx.x, kv_head = blockIdx.y, split = blockIdx.z, num_splits = gridDim.z;
  int64_t num_tiles = (params.context_lens[seq] + tile_size - 1) / tile_size;
  attend_staged(state, *reinterpret_cast<StagedTiles*>(memory), params, seq, kv_head,
                num_tiles * split / num_splits, num_tiles * (split + 1) / num_splits);
  if (threadIdx.x >= 32) return;
  int64_t first = (int64_t(split) * params.num_seqs + seq) * params.num_q_heads +
                  kv_head * queries_per_kv_head;
  finish(state, [&](int query, int dim, const float (&o)[8], float m, float l) {
    for (int i = 0; i < 8; ++i) part_o[(first + query) * head_size + dim + i] = o[i];
    if (dim == 0) part_m[first + query] = m, part_l[first + query] = l;
  });
}

extern "C" int paged_attention(PagedAttentionParams params, float* part_o, float* part_m,
                               float* part_l, int num_splits, cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(
      split_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(StagedTiles));
  if (error != cudaSuccess) return error;
  dim3 grid(params.num_seqs, params.num_kv_heads, num_splits);
  split_kernel<<<grid, num_warps * 32, sizeof(StagedTiles), stream>>>(params, part_o, part_m,
                                                                      part_l);
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  return launch_combine(params, part_o, part_m, part_l, num_splits, stream);
}
