#pragma once

#include "matrix_loads.cuh"
#include "row_state.cuh"

// The online softmax of a tile of keys. state takes in its scores, and the scores become the
// weights of its values. With r = lane / 4, what belongs to the warp's row 16t + 8i + r has
// the indices t and i. The other lanes with the same r have the row's other scores and sums.
//   scores[t][n][2 * i + j], all n and j: products of queries and keys, not scaled; -INFINITY
//     for a key that is hidden, and its weight is 0
//   state.m[t][i]: stays -INFINITY as long as the row has seen no key
//   state.l[t][i]: a sum of weights; those of the row's four lanes are added at the very end
//   state.acc[t][d][2 * i + j], all d and j: only rescaled here; values are added later
//   factor: the scale times log2(e), so exp(scale * x) is power_of_2(factor * x)
template <int row_tiles, int key_tiles>
__device__ void take_scores(RowState<row_tiles>& state,
                            float (&scores)[row_tiles][key_tiles][4], float factor) {
  // BEGIN SOLUTION 9.3
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
  // END SOLUTION
}
