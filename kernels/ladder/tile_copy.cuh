#pragma once

#include "async_copy.cuh"
#include "tile.cuh"

// Tiles in shared memory: how they get there, and how a lane finds its chunks. Neighbouring
// lanes copy neighbouring chunks of a row, so that whole lines of memory are read. The lane
// that copies a chunk is seldom the lane that holds it later.

// The place of a lane's chunk in a stage. Without `^`, lanes that write a row or read their
// chunks would use the same banks of shared memory, and wait for each other.
//   number: which of the lane's chunks; the keys' come first
__device__ inline int key_place(int number, int lane) {
  return number * 32 + (lane ^ number % 2 * 4);
}
__device__ inline int value_place(int number, int r, int s) {
  return number * 32 + s * 8 + (r ^ 2 * s);
}

// Copies tiles into shared memory, row by row: neighbouring lanes read neighbouring chunks.
struct TileCopier {
  static constexpr int row_chunks = head_size / per_chunk, rows_at_once = 32 / row_chunks;
  const KvNumber *keys, *values;  // of row 0, this lane's chunk
  int key_places[2], value_places[4];

  __device__ static int key_place_of(int token, int x) {
    return key_place(token / 8 * key_chunks + x / 4, token % 8 * 4 + x % 4);
  }
  __device__ static int value_place_of(int token, int x) {
    return value_place(2 * key_chunks + (token % 2 + token / 8 * 2) * value_chunks + x / 8,
                       x % 8, token % 8 / 2);
  }

  __device__ TileCopier(const PagedAttentionParams& params) {
    int token = threadIdx.x % 32 / row_chunks, x = threadIdx.x % row_chunks;
    keys = static_cast<const KvNumber*>(params.k_cache) + x * per_chunk;
    values = static_cast<const KvNumber*>(params.v_cache) + x * per_chunk;
    for (int i = 0; i < 2; ++i) key_places[i] = key_place_of(token + i, x);
    for (int i = 0; i < 4; ++i) value_places[i] = value_place_of(token + 2 * i, x);
  }

  // row: the row of token lane % 16; a row is head_size numbers of the cache. Tokens from
  // num_tokens on become zeros.
  __device__ void copy(AsyncCopies& copies, uint4* stage, int row, int num_tokens) const {
#pragma unroll
    for (int i = 0; i < tile_size / rows_at_once; ++i) {
      // `first` is the warp's lowest token
      int first = i * rows_at_once, token = first + threadIdx.x % 32 / row_chunks;
      int64_t begin = int64_t(__shfl_sync(0xffffffff, row, token)) * head_size;
      // The lane's places in a row with the same swizzle were computed beforehand. Its places
      // in this row differ from those by a number that the compiler knows.
      int like_key = rows_at_once == 1 ? first % 2 : 0, like_value = first / 2 % 4;
      int key = key_places[like_key] + key_place_of(first, 0) - key_place_of(like_key, 0);
      int value = value_places[like_value] + value_place_of(first, 0) -
                  value_place_of(2 * like_value, 0);
      copies.copy(stage + key, keys + begin, token < num_tokens);
      copies.copy(stage + value, values + begin, token < num_tokens);
    }
  }
};

// The lane's chunks of a tile in shared memory.
struct StagedChunks {
  const uint4* stage;
  __device__ uint4 key(int i, int chunk) const {
    return stage[key_place(i * key_chunks + chunk, threadIdx.x % 32)];
  }
  __device__ uint4 value(int i, int chunk) const {
    return stage[value_place(2 * key_chunks + i * value_chunks + chunk, threadIdx.x % 32 / 4,
                             threadIdx.x % 4)];
  }
};
