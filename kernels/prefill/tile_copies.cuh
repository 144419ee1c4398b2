#pragma once

#include "../ladder/async_copy.cuh"
#include "tile_shape.cuh"

// Copies a tile's queries. Neighbouring threads copy neighbouring chunks. Rows that do not
// exist become zeros.
template <typename Rows>
__device__ void copy_queries(AsyncCopies& copies, uint4* to, const Rows& rows) {
  int num_rows = rows.count(), chunk = threadIdx.x % row_chunks;
#pragma unroll
  for (int row = threadIdx.x / row_chunks; row < tile_rows; row += num_threads / row_chunks) {
    bool there = row < num_rows;
    copies.copy(to + place(row, chunk), rows.q(there ? row : 0) + chunk * 8, there);
  }
}

// Copies tiles of keys and values through the block table. A thread copies the same chunk of
// several rows. Its warp's lanes look up a row each, and the others ask them for it by
// shuffles. The lookup is a load: made one tile early, nothing waits for it.
template <typename Rows>
struct KeyCopier {
  static constexpr int rows_at_once = num_threads / row_chunks;
  static constexpr int warp_rows = 32 / row_chunks;  // of those, a warp's
  static constexpr int num_steps = tile_keys / rows_at_once;
  const Rows& rows;
  int row;  // in the caches; this lane's lookup

  __device__ KeyCopier(const Rows& rows) : rows(rows) {}
  __device__ void look_up(int tile) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int key = lane / warp_rows * rows_at_once + warp * warp_rows + lane % warp_rows;
    key = min(tile * tile_keys + key, rows.sequence.num_keys - 1);
    row = rows.sequence.cache_row(rows.params, key, rows.kv_head());
  }
  // Copies the tile that was looked up last. Keys that do not exist become zeros, whatever is
  // in their slots.
  __device__ void copy(AsyncCopies& copies, uint4 (&stage)[2][tile_keys * row_chunks],
                       int tile) const {
    int chunk = threadIdx.x % row_chunks, lane = threadIdx.x % 32;
    int num_keys = rows.sequence.num_keys - tile * tile_keys;
    auto keys = static_cast<const Number*>(rows.params.k_cache) + chunk * 8;
    auto values = static_cast<const Number*>(rows.params.v_cache) + chunk * 8;
#pragma unroll
    for (int step = 0; step < num_steps; ++step) {
      int key = threadIdx.x / row_chunks + step * rows_at_once;
      int64_t begin = __shfl_sync(0xffffffff, row, step * warp_rows + lane / row_chunks);
      copies.copy(&stage[0][place(key, chunk)], keys + begin * head_size, key < num_keys);
      copies.copy(&stage[1][place(key, chunk)], values + begin * head_size, key < num_keys);
    }
  }
};
