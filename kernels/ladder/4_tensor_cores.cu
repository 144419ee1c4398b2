// Rung 4: one block for each sequence and KV head. The block computes all query heads that
// share the KV head, so each key and each value is read once instead of once per query head.
// The tensor cores multiply eight queries at a time.
#include <cuda_runtime.h>

#include "tile_state.cuh"

constexpr int num_warps = 4;

// The lane's chunks of a tile, straight from the cache. Tokens that do not exist are zeros.
struct CachedChunks {
  const KvNumber *keys[2], *values[4];

  __device__ CachedChunks(const PagedAttentionParams& params, int seq, int kv_head, int first,
                          int num_tokens) {
    int r = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
    auto find = [&](const void* cache, int token, int chunk) {
      if (token >= num_tokens) return static_cast<const KvNumber*>(nullptr);
      int64_t row = cache_row(params, seq, first + token, kv_head) * head_size;
      return static_cast<const KvNumber*>(cache) + row + chunk * per_chunk;
    };
    for (int i = 0; i < 2; ++i) keys[i] = find(params.k_cache, r + 8 * i, s);
    for (int i = 0; i < 4; ++i) values[i] = find(params.v_cache, 2 * s + i % 2 + i / 2 * 8, r);
  }
  __device__ static uint4 read(const KvNumber* row, int chunk) {
    return row ? *reinterpret_cast<const uint4*>(row + chunk * per_chunk)
               : make_uint4(0, 0, 0, 0);
  }
  __device__ uint4 key(int i, int chunk) const { return read(keys[i], chunk * 4); }
  __device__ uint4 value(int i, int chunk) const { return read(values[i], chunk * 8); }
};

// Grid: (num_seqs, num_kv_heads). The warps take the tiles in turn.
__global__ void tensor_core_kernel(PagedAttentionParams params) {
  extern __shared__ float4 memory[];  // the states of all warps but the first
  int seq = blockIdx.x, kv_head = blockIdx.y, warp = threadIdx.x / 32;
  int num_tokens = params.context_lens[seq];
  TileQueries queries = load_queries(query_row(params, seq, kv_head));
  TileState state;
  init(state);
  for (int first = warp * tile_size; first < num_tokens; first += num_warps * tile_size) {
    CachedChunks chunks(params, seq, kv_head, first, num_tokens - first);
    update(state, queries, chunks, num_tokens - first, params.scale);
  }
  // as arrays of float4, one for each warp
  merge_warps(state, reinterpret_cast<float4(*)[state_numbers]>(memory), 1);
  if (warp == 0) write_out(state, out_row(params, seq, kv_head));
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  int states_bytes = (num_warps - 1) * state_numbers * sizeof(float4);
  cudaError_t error = cudaFuncSetAttribute(
      tensor_core_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, states_bytes);
  if (error != cudaSuccess) return error;
  dim3 grid(params.num_seqs, params.num_kv_heads);
  tensor_core_kernel<<<grid, num_warps * 32, states_bytes, stream>>>(params);
  return cudaGetLastError();
}
