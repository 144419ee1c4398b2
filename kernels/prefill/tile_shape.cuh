#pragma once

#include "params.cuh"

// The sizes of tiles from rung 2 on. A block has tile_rows queries, and loads tile_keys keys
// and values at a time into one of two stages. tile_sizes.py counts alike.
constexpr int row_chunks = head_size / 8;  // a row in chunks of 16 bytes

template <int rows, int keys>
struct StagedTiles {
  uint4 queries[rows * row_chunks];
  uint4 stages[2][2][keys * row_chunks];  // keys, then values
};
constexpr bool roomy = sizeof(StagedTiles<128, 64>) <= shared_bytes;
constexpr int tile_rows = roomy ? 128 : 64, tile_keys = roomy ? 64 : 32;
using Shared = StagedTiles<tile_rows, tile_keys>;

// A warp has 16 rows, or twice 16: then it loads each key once for both. A lane has
// 16 * head_size / 32 numbers of a result of 16 rows in registers, so at head size 256 there
// is no room for two.
constexpr int most_row_tiles = head_size <= 128 ? 2 : 1;
constexpr int num_warps = tile_rows / (16 * most_row_tiles), num_threads = 32 * num_warps;
// Two blocks have room in a multiprocessor if their registers do. One multiplies while the
// other computes its softmax.
constexpr int blocks_at_once = head_size <= 128 ? 2 : 1;

// Where a chunk of a row is. Eight neighbouring rows have it in eight different places modulo
// 8, so that their 16 bytes come from all 32 banks of shared memory at once.
__device__ inline int place(int row, int chunk) {
  return row * row_chunks + (chunk ^ row % 8);
}

// The rows of a tile: `heads` heads of a token, then those of the next token.
template <int heads>
struct TileRows {
  const PrefillParams& params;
  Sequence sequence;
  int first_row, first_head;

  __device__ TileRows(const PrefillParams& params, const WorkItem& item, int first_head)
      : params(params),
        sequence(params, item.seq),
        first_row(item.first_row),
        first_head(first_head) {}
  // How many of the tile's rows there are; the rest are zeros.
  __device__ int count() const {
    return min(tile_rows, sequence.num_queries * heads - first_row);
  }
  __device__ int kv_head() const { return first_head / queries_per_kv_head; }
  __device__ int query(int row) const { return (first_row + row) / heads; }
  __device__ int token(int row) const { return sequence.first_token + query(row); }
  __device__ int head(int row) const { return first_head + (first_row + row) % heads; }
  __device__ int last_key(int row) const { return sequence.last_key(query(row)); }
  __device__ const Number* q(int row) const { return query_of(params, token(row), head(row)); }
  __device__ Number* out(int row) const { return out_of(params, token(row), head(row)); }
};
