#pragma once

#include "tile_shape.cuh"

// The sizes of rung 5. Two groups of four warps compute, 64 rows of the tile each, and one
// warp copies. A stage is a tile of keys, or of values. tile_sizes.py counts
// alike.
constexpr int num_groups = 2, group_threads = 128, group_rows = tile_rows / num_groups;
constexpr int copying_warp = num_groups * 4;
// On a GPU the copying warp has three idle ones beside it, since registers are given to groups
// of four warps: those that copy give theirs to those that compute.
#ifdef __CUDACC__
constexpr int all_threads = group_threads * (num_groups + 1);
#else
constexpr int all_threads = 32 * (copying_warp + 1);
#endif
constexpr int copying_registers = 40, computing_registers = 232;
constexpr int stage_keys = head_size <= 128 ? 128 : 64;
constexpr int num_stages = head_size <= 128 ? 3 : 2;  // as many as there is room for

// A tile is stored as panels of 64 dims: 128 bytes of a row, then those of the next row. This
// is what a tensor map copies, and what a product of a warpgroup reads.
constexpr int panel_chunks = 8, num_panels = row_chunks / panel_chunks;
constexpr int chunks_of_16 = 2;  // 16 dims of a row

// Where a chunk of 16 bytes is. Eight neighbouring rows have it in eight different places, so
// that their chunks come from all banks at once. The hardware counts alike (its name for it is
// the swizzle of 128 bytes), if the tile begins at a multiple of 1024 bytes.
template <int rows>
__device__ inline int place_in_panels(int row, int chunk) {
  return (chunk / panel_chunks * rows + row) * panel_chunks + (chunk % panel_chunks ^ row % 8);
}

// Chunks of a stage.
constexpr int stage_chunks = stage_keys * row_chunks;
