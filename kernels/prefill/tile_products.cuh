#pragma once

#include "../ladder/matrix.cuh"
#include "matrix_loads.cuh"
#include "row_state.cuh"

// scores = queries · keys.
//   queries, keys: in shared memory, the warp's first row and first key
template <int row_tiles, int key_tiles>
__device__ void multiply_keys(float (&scores)[row_tiles][key_tiles][4], const uint4* queries,
                              const uint4* keys) {
  int lane = threadIdx.x % 32;
  queries += lane % 16 * row_chunks;
  keys += (lane / 16 * 8 + lane % 8) * row_chunks;
  int query_chunk = lane / 16 ^ lane % 8, key_chunk = lane / 8 % 2 ^ lane % 8;
  for (auto& of_rows : scores)
    for (auto& of_keys : of_rows)
      for (float& score : of_keys) score = 0.0f;
#pragma unroll
  for (int k = 0; k < head_size / 16; ++k) {  // 16 dims
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int t = 0; t < row_tiles; ++t)
      load_matrices(a[t], queries + t * 16 * row_chunks + (2 * k ^ query_chunk));
#pragma unroll
    for (int n = 0; n < key_tiles; n += 2) {  // 16 keys
      uint32_t b[4];
      load_matrices(b, keys + n * 8 * row_chunks + (2 * k ^ key_chunk));
#pragma unroll
      for (int t = 0; t < row_tiles; ++t) {
        multiply_add<Number>(scores[t][n], a[t], {b[0], b[1]});
        multiply_add<Number>(scores[t][n + 1], a[t], {b[2], b[3]});
      }
    }
  }
}

// acc += weights · values. What a lane has of a product of 16 rows and 8 keys is what it needs
// of them as a left factor, so the weights stay in their registers.
//   values: in shared memory, that of the warp's first key
template <int row_tiles, int key_tiles>
__device__ void add_values(RowState<row_tiles>& state,
                           const float (&weights)[row_tiles][key_tiles][4],
                           const uint4* values) {
  int lane = threadIdx.x % 32;
  values += lane % 16 * row_chunks;
  int chunk = lane / 16 ^ lane % 8;
#pragma unroll
  for (int k = 0; k < key_tiles / 2; ++k) {  // 16 keys
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) {
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[t][2 * k + i / 2][i % 2 * 2];
        a[t][i] = pack<Number>(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int d = 0; d < head_size / 16; ++d) {  // 16 dims
      uint32_t b[4];
      load_transposed(b, values + k * 16 * row_chunks + (2 * d ^ chunk));
#pragma unroll
      for (int t = 0; t < row_tiles; ++t) {
        multiply_add<Number>(state.acc[t][2 * d], a[t], {b[0], b[1]});
        multiply_add<Number>(state.acc[t][2 * d + 1], a[t], {b[2], b[3]});
      }
    }
  }
}
