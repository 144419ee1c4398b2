#pragma once

#include <cuda_runtime.h>

#include "tile_copy.cuh"
#include "tile_state.cuh"

// What rungs 7 to 9 have in common: each block does the items of work that a plan gives it.
constexpr int num_warps = tile_chunks > 16 ? 4 : 8;
constexpr int stage_bytes = num_warps * tile_chunks * 32 * sizeof(uint4);
constexpr int states_bytes = (num_warps - 1) * state_numbers * sizeof(float4);
constexpr int stages_with_room = (shared_bytes - states_bytes - 16) / stage_bytes;
// The stages on their way at once: enough to hide the card's latency. With more, each load
// would only wait longer for those before it.
constexpr int enough_stages = 96 * 1024 / stage_bytes < 2 ? 2 : 96 * 1024 / stage_bytes;
constexpr int num_stages = stages_with_room < enough_stages ? stages_with_room : enough_stages;
static_assert(num_stages >= 1, "this card has too little shared memory for these heads");
constexpr int lookups_ahead = 2;

// One block's share of a sequence, for heads_at_once KV heads. Made by
// work_plan.py or, in rung 9, by plan.cuh.
struct alignas(16) WorkItem {
  int seq, kv_head;           // the first head
  int begin, end;             // tokens
  int part;                   // its place among the parts; -1 if the sequence is not cut
  int first_part, num_parts;  // of the sequence
  int next;                   // this block's next item, or -1; block b begins with item b
};

struct Work {
  const WorkItem* items;
  float4* parts;
  int* arrived;
  const float *k_scales, *v_scales;  // of each KV head, for caches of 8 bits; null means 1
  // Different warps of a block take different heads. If there are more warps than heads, they
  // take different tiles.
  int heads_at_once;
};

struct Shared {
  uint4 stages[num_warps][num_stages][tile_chunks * 32];
  float4 states[num_warps - 1][state_numbers];  // of all warps but the first
  int is_last;
};

__device__ inline int num_tiles(const WorkItem& item) {
  return (item.end - item.begin + tile_size - 1) / tile_size;
}

// Where a tile is. `block` is loaded from memory, and a thread waits for a load where it first
// uses the number. So tiles are looked up lookups_ahead tiles early, and `block` is first used
// in load_next.
struct Lookup {
  int tokens;               // of the tile; less than 1 if there is no tile
  int block, row_in_block;  // of token lane % 16
};

// A warp's place in the block's work: which tile it loads next. The warps take the tiles in
// turn, from one item to the next.
struct Cursor {
  const PagedAttentionParams& params;
  const WorkItem* items;
  WorkItem item;
  int head, tile, step;
  bool done;

  __device__ Cursor(const PagedAttentionParams& params, const Work& work, int head, int tile,
                    int step)
      : params(params),
        items(work.items),
        item(items[blockIdx.x]),
        head(head),
        tile(tile),
        step(step),
        done(false) {
    enter();
  }
  __device__ void enter() {  // prefetches what will be needed soon
    if (item.next >= 0) prefetch(items + item.next + 1);  // a block's later items are in a row
    if (threadIdx.x % 32 * 64 < queries_per_kv_head * head_size)
      prefetch(query_row(params, item.seq, item.kv_head + head) + threadIdx.x % 32 * 64);
  }
  // Looks up the next tile, and moves on.
  __device__ Lookup next() {
    while (!done && tile >= num_tiles(item)) {
      tile -= num_tiles(item);
      done = item.next < 0;
      if (!done) item = items[item.next], enter();
    }
    Lookup found{0, 0, 0};
    if (done) return found;
    int first = item.begin + tile * tile_size;
    int token = min(first + int(threadIdx.x) % tile_size, item.end - 1);
    found.tokens = item.end - first;
    const int* table = params.block_table + int64_t(item.seq) * params.max_blocks_per_seq;
    if (found.tokens > 0) found.block = table[token / block_size];
    found.row_in_block = token % block_size * params.num_kv_heads + item.kv_head + head;
    tile += step;
    return found;
  }
};

// Puts the block's states among the parts. The last block of a sequence merges all parts and
// returns true.
__device__ inline bool merge_parts(TileState& state, Shared& shared, const Work& work,
                                   const WorkItem& item) {
  int warp = threadIdx.x / 32, head = warp % work.heads_at_once;
  auto part = [&](int number) {
    return work.parts + (int64_t(number) * work.heads_at_once + head) * state_numbers;
  };
  if (warp < work.heads_at_once) store(state, part(item.part));
  __threadfence();  // the parts first, then the count
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last = atomicAdd(&work.arrived[item.first_part], 1) == item.num_parts - 1;
    if (shared.is_last) work.arrived[item.first_part] = 0;  // for the next launch
  }
  __syncthreads();
  if (!shared.is_last) return false;
  __threadfence();
  init(state);
  for (int number = warp / work.heads_at_once; number < item.num_parts;
       number += num_warps / work.heads_at_once)
    merge(state, part(item.first_part + number));
  merge_warps(state, shared.states, work.heads_at_once);
  return true;
}

// The whole kernel of rungs 7 to 9: the block does its items, one after the other.
__device__ inline void attend_balanced(Shared& shared, const PagedAttentionParams& params,
                                       const Work& work) {
  int table_numbers = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
  if (table_numbers < params.num_seqs * params.max_blocks_per_seq)
    prefetch(params.block_table + table_numbers);
  int warp = threadIdx.x / 32, head = warp % work.heads_at_once;
  int phase = warp / work.heads_at_once, num_phases = num_warps / work.heads_at_once;
  AsyncCopies copies;
  TileCopier copier(params);
  Cursor cursor(params, work, head, phase, num_phases);
  Lookup ahead[lookups_ahead];
  for (Lookup& lookup : ahead) lookup = cursor.next();
  int block_rows = block_size * params.num_kv_heads;
  auto load_next = [&](int stage) {
    Lookup first = ahead[0];
    int row = first.block * block_rows + first.row_in_block;
    if (first.tokens > 0) copier.copy(copies, shared.stages[warp][stage], row, first.tokens);
    copies.close_group();
    for (int i = 1; i < lookups_ahead; ++i) ahead[i - 1] = ahead[i];
    ahead[lookups_ahead - 1] = cursor.next();
  };
  for (int stage = 0; stage < num_stages; ++stage) load_next(stage);

  int stage = 0, tile = phase;
  WorkItem item = work.items[blockIdx.x];
  TileQueries queries = load_queries(query_row(params, item.seq, item.kv_head + head));
  auto scale_of = [&](const float* scales) {
    return scales ? scales[item.kv_head + head] : 1.0f;
  };
  while (true) {
    TileState state;
    init(state);
    float scale = params.scale * scale_of(work.k_scales);
    for (; tile < num_tiles(item); tile += num_phases) {
      copies.wait<num_stages - 1>();
      __syncwarp();  // every lane's copies are there, not just this one's
      update(state, queries, StagedChunks{shared.stages[warp][stage]},
             item.end - item.begin - tile * tile_size, scale);
      __syncwarp();  // every lane has read
      load_next(stage);
      stage = stage + 1 == num_stages ? 0 : stage + 1;
    }
    tile -= num_tiles(item);
    WorkItem next = item;
    if (item.next >= 0) {
      next = work.items[item.next];
      queries = load_queries(query_row(params, next.seq, next.kv_head + head));
    }
    merge_warps(state, shared.states, work.heads_at_once);
    bool complete = item.part < 0 || merge_parts(state, shared, work, item);
    if (complete && phase == 0)
      write_out(state, out_row(params, item.seq, item.kv_head + head),
                scale_of(work.v_scales));
    if (item.next < 0) break;
    item = next;
  }
}
