#pragma once

#include "attend.cuh"

// Where several warps have the same rows and different keys: merges their states into that of
// the first of them, as merge() of lesson 03 does. The states pass through the stages. All
// threads of the block call it.
template <int key_warps, int row_tiles>
__device__ void merge_keys(RowState<row_tiles>& state, Shared& shared, float factor) {
  if constexpr (key_warps > 1) {
    constexpr int acc_numbers = row_tiles * (head_size / 8), numbers = acc_numbers + row_tiles;
    constexpr int num_others = num_warps - num_warps / key_warps;  // that hand theirs over
    static_assert(num_others * numbers * 32 * sizeof(float4) <= sizeof(shared.stages),
                  "the states have room in the stages");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // (num_others, numbers, 32): m and l of the rows, then acc, of each lane
    auto state_of = [&](int other) {
      return reinterpret_cast<float4*>(shared.stages) +
             (other - other / key_warps - 1) * numbers * 32 + lane;
    };
    __syncthreads();  // all have used the last tile
    if (warp % key_warps != 0) {
      float4* mine = state_of(warp);
#pragma unroll
      for (int t = 0; t < row_tiles; ++t) {
        mine[t * 32] = make_float4(state.m[t][0], state.l[t][0], state.m[t][1], state.l[t][1]);
#pragma unroll
        for (int d = 0; d < head_size / 8; ++d) {
          const float* acc = state.acc[t][d];
          mine[(row_tiles + t * (head_size / 8) + d) * 32] =
              make_float4(acc[0], acc[1], acc[2], acc[3]);
        }
      }
    }
    __syncthreads();  // the states are there
    if (warp % key_warps != 0) return;
    for (int other = warp + 1; other < warp + key_warps; ++other) {
      const float4* its = state_of(other);
#pragma unroll
      for (int t = 0; t < row_tiles; ++t) {
        float4 ml = its[t * 32];
        float mine[2], theirs[2], its_m[2] = {ml.x, ml.z}, its_l[2] = {ml.y, ml.w};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float m = fmaxf(state.m[t][i], its_m[i]), finite = m == -INFINITY ? 0.0f : m;
          mine[i] = power_of_2(factor * (state.m[t][i] - finite));
          theirs[i] = power_of_2(factor * (its_m[i] - finite));
          state.m[t][i] = m;
          state.l[t][i] = mine[i] * state.l[t][i] + theirs[i] * its_l[i];
        }
#pragma unroll
        for (int d = 0; d < head_size / 8; ++d) {
          float4 acc = its[(row_tiles + t * (head_size / 8) + d) * 32];
          float* to = state.acc[t][d];
          to[0] = mine[0] * to[0] + theirs[0] * acc.x;
          to[1] = mine[0] * to[1] + theirs[0] * acc.y;
          to[2] = mine[1] * to[2] + theirs[1] * acc.z;
          to[3] = mine[1] * to[3] + theirs[1] * acc.w;
        }
      }
    }
  }
}
