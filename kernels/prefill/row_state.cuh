#pragma once

#include <cmath>

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
    for (auto& largest : m) largest[0] = largest[1] = -INFINITY;
    for (auto& sum : l) sum[0] = sum[1] = 0.0f;
    for (auto& of_rows : acc)
      for (auto& sums : of_rows)
        for (float& sum : sums) sum = 0.0f;
  }
};

// Of every row the sum of weights, which four lanes have together.
__device__ inline float sum_of_lanes(float l) {
  l += __shfl_xor_sync(0xffffffff, l, 1);
  return l + __shfl_xor_sync(0xffffffff, l, 2);
}
