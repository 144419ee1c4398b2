#pragma once

#include <cmath>

#include "../ladder/matrix.cuh"
#include "matrix_loads.cuh"
#include "tile_shape.cuh"

// A warp's online softmax of 16 * row_tiles rows, in registers. With r = lane / 4 and
// s = lane % 4, a lane has of each 16 rows the rows r and r+8 (i = 0 and 1), and of each 8
// dims or keys the numbers 2s and 2s+1, as the products of matrices give them (matrix.cuh).
template <int row_tiles_>
struct RowState {
  static constexpr int row_tiles = row_tiles_;
  float m[row_tiles][2];  // the largest product so far, not scaled; the same in four lanes
  float l[row_tiles][2];  // the sum of this lane's weights
  float acc[row_tiles][head_size / 8][4];

  __device__ RowState() {
    for (int t = 0; t < row_tiles; ++t) {
      for (int i = 0; i < 2; ++i) m[t][i] = -INFINITY, l[t][i] = 0.0f;
      for (auto& sums : acc[t])
        for (float& sum : sums) sum = 0.0f;
    }
  }
};

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

// m, l and acc take in the scores' keys. The scores become weights.
//   factor: the scale times log2(e): exp(scale * x) is 2 to the power factor * x
template <int row_tiles, int key_tiles>
__device__ void take_scores(RowState<row_tiles>& state,
                            float (&scores)[row_tiles][key_tiles][4], float factor) {
#pragma unroll
  for (int t = 0; t < row_tiles; ++t) {
    float rescale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m = state.m[t][i];
#pragma unroll
      for (int n = 0; n < key_tiles; ++n)
        m = fmaxf(m, fmaxf(scores[t][n][2 * i], scores[t][n][2 * i + 1]));
      for (int distance = 1; distance < 4; distance *= 2)
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, distance));
      float finite = m == -INFINITY ? 0.0f : m, sum = 0.0f;
      rescale[i] = power_of_2(factor * (state.m[t][i] - finite));
      state.m[t][i] = m;
#pragma unroll
      for (int n = 0; n < key_tiles; ++n) {
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          scores[t][n][j] = power_of_2(fmaf(factor, scores[t][n][j], -factor * finite));
          sum += scores[t][n][j];
        }
      }
      state.l[t][i] = rescale[i] * state.l[t][i] + sum;
    }
#pragma unroll
    for (auto& sums : state.acc[t])
      for (int j = 0; j < 4; ++j) sums[j] *= rescale[j / 2];
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

// Of every row the sum of weights, which four lanes have together.
__device__ inline float sum_of_lanes(float l) {
  l += __shfl_xor_sync(0xffffffff, l, 1);
  return l + __shfl_xor_sync(0xffffffff, l, 2);
}
