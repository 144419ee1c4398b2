#pragma once

#include "tile_copy.cuh"
#include "tile_state.cuh"

// What a block of rungs 5 and 6 keeps in shared memory: tiles on their way and, when all were
// used, the warps' states. Two blocks have room in a multiprocessor, so that one loads while
// the other begins or ends. If half of the memory is less than two stages, one block has it
// all.
constexpr int num_warps = 4;
constexpr int stage_bytes = num_warps * tile_chunks * 32 * sizeof(uint4);
constexpr int stages_in_half = (shared_bytes / 2 - 1024) / stage_bytes;
constexpr int stages_in_all = (shared_bytes - 1024) / stage_bytes < 2 ? 1 : 2;
constexpr int num_stages = stages_in_half < 2 ? stages_in_all : stages_in_half;
union StagedTiles {
  uint4 stages[num_warps][num_stages][tile_chunks * 32];
  float4 states[num_warps - 1][state_numbers];
};

// Attention of a KV head's queries over the tiles begin … end - 1 of a sequence. The result is
// in the first warp's state.
__device__ inline void attend_staged(TileState& state, StagedTiles& shared,
                                     const PagedAttentionParams& params, int seq, int kv_head,
                                     int begin, int end) {
  int warp = threadIdx.x / 32, num_tokens = params.context_lens[seq];
  AsyncCopies copies;
  TileCopier copier(params);
  auto load = [&](int tile, int stage) {
    if (tile < end) {
      int first = tile * tile_size;
      int token = min(first + int(threadIdx.x) % tile_size, num_tokens - 1);
      copier.copy(copies, shared.stages[warp][stage], cache_row(params, seq, token, kv_head),
                  num_tokens - first);
    }
    copies.close_group();  // even an empty one, so that counting groups counts tiles
  };
  for (int stage = 0; stage < num_stages; ++stage)
    load(begin + warp + stage * num_warps, stage);

  TileQueries queries = load_queries(query_row(params, seq, kv_head));
  init(state);
  int stage = 0;
  for (int tile = begin + warp; tile < end; tile += num_warps) {
    copies.wait<num_stages - 1>();
    __syncwarp();  // every lane's copies are there, not only this one's
    update(state, queries, StagedChunks{shared.stages[warp][stage]},
           num_tokens - tile * tile_size, params.scale);
    __syncwarp();  // every lane has read
    load(tile + num_stages * num_warps, stage);
    stage = (stage + 1) % num_stages;
  }
  merge_warps(state, shared.states, 1);
}
