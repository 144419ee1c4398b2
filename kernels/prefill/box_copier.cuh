#pragma once

#include "tensor_map.cuh"

#ifndef __CUDACC__
#define __grid_constant__
#endif

struct alignas(1024) HopperShared {
  uint4 queries[tile_rows * row_chunks];  // those of group 0, then those of group 1
  uint4 keys[num_stages][stage_chunks], values[num_stages][stage_chunks];
  Stages key_stages, value_stages;
  Barrier last_tile;  // of keys or of values, that is not full

  __device__ void begin() {
    key_stages.begin(), value_stages.begin(), last_tile.begin(1);
#ifdef __CUDACC__
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    show_to_copies_and_products();
  }
};

// Copies tiles of keys and values: the work of one warp. A lane copies 64 dims of a block.
struct BoxCopier {
  static constexpr int stage_blocks = stage_keys / block_size;
  HopperShared& shared;
  const PrefillParams& params;
  int fills = 0, waits = 0, lane = threadIdx.x % 32;
  int panel = lane / stage_blocks, place = lane % stage_blocks;

  __device__ BoxCopier(HopperShared& shared, const PrefillParams& params)
      : shared(shared), params(params) {}

  // The values of a tile come after the keys of the next one, as they are needed.
  __device__ void copy(const WorkItem& item, int kv_head, const CacheMap& keys,
                       const CacheMap& values) {
    Sequence sequence(params, item.seq);
    int block = block_of(sequence, item.begin), block_before = 0;
    for (int tile = item.begin; tile <= item.end; ++tile, ++fills) {
      int next = block_of(sequence, tile + 1);
      if (tile < item.end)
        fill(shared.key_stages, shared.keys, fills, keys, block, kv_head,
             sequence.num_keys - tile * stage_keys);
      if (tile > item.begin)
        fill(shared.value_stages, shared.values, fills - 1, values, block_before, kv_head,
             sequence.num_keys - (tile - 1) * stage_keys);
      block_before = block, block = next;
    }
    --fills;
  }
  // The block of this lane in a tile; looked up a tile early, so that nothing waits for it.
  __device__ int block_of(const Sequence& sequence, int tile) const {
    int number = tile * stage_blocks + place;
    return number * block_size < sequence.num_keys ? sequence.blocks[number] : 0;
  }
  // num_keys: that are left of the sequence. What comes after them in the tile becomes zeros.
  __device__ void fill(Stages& stages, uint4 (&tiles)[num_stages][stage_chunks], int n,
                       const CacheMap& map, int block, int kv_head, int num_keys) {
    uint4* tile = tiles[Stages::stage(n)];
    Barrier& full = stages.full[Stages::stage(n)];
    bool whole = num_keys >= stage_keys;
    Barrier& barrier = whole ? full : shared.last_tile;
    int num_blocks = whole ? stage_blocks : (num_keys + block_size - 1) / block_size;
    stages.wait_until_empty(n);
    if (lane == 0)
      barrier.arrive_and_expect(num_blocks * block_size * head_size * int(sizeof(Number)));
    BoxCopies copies;
    if (panel < num_panels && place < num_blocks)
      copies.copy(tile + (panel * stage_keys + place * block_size) * panel_chunks, map, block,
                  kv_head, panel, barrier);
    copies.arrive();
    if (!whole) {
      barrier.wait(waits++ % 2);
      __syncwarp();
      for (int i = num_keys * row_chunks + lane; i < stage_chunks; i += 32)
        tile[place_in_panels<stage_keys>(i / row_chunks, i % row_chunks)] =
            make_uint4(0, 0, 0, 0);
      show_to_copies_and_products();
      __syncwarp();  // all lanes have written their zeros
      if (lane == 0) full.arrive();
    }
    step_together();
  }
};
