#pragma once

#include "softmax_state.cuh"

// Takes in all the tokens that another state has seen.
__device__ inline void merge(SoftmaxState& state, const SoftmaxState& other) {
  float m = fmaxf(state.m, other.m), finite = m == -INFINITY ? 0.0f : m;
  float mine = __expf(state.m - finite), theirs = __expf(other.m - finite);
  state.m = m;
  state.l = mine * state.l + theirs * other.l;
  for (int i = 0; i < lane_numbers; ++i)
    state.acc[i] = mine * state.acc[i] + theirs * other.acc[i];
}

// The state of the lane with a number that differs in the bit `distance`. That lane belongs to
// another group and has the same part of acc.
__device__ inline SoftmaxState of_lane(const SoftmaxState& state, int distance) {
  SoftmaxState other;
  other.m = __shfl_xor_sync(0xffffffff, state.m, distance);
  other.l = __shfl_xor_sync(0xffffffff, state.l, distance);
  for (int i = 0; i < lane_numbers; ++i)
    other.acc[i] = __shfl_xor_sync(0xffffffff, state.acc[i], distance);
  return other;
}

// Merges the states of all groups of the block into those of the first group: within a warp by
// shuffles, then through shared memory. All threads call it.
__device__ inline void merge_groups(SoftmaxState& state) {
  __shared__ SoftmaxState of_warp[num_warps - 1][group_lanes];  // of all warps but the first
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int distance = group_lanes; distance < 32; distance *= 2)
    merge(state, of_lane(state, distance));
  if (warp > 0 && lane < group_lanes) of_warp[warp - 1][lane] = state;
  __syncthreads();
  if (threadIdx.x >= group_lanes) return;
  for (int other = 0; other < num_warps - 1; ++other) merge(state, of_warp[other][lane]);
}
