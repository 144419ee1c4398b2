#pragma once

#include "tile.cuh"

// A warp's state in memory: lane by lane, 16 bytes of each lane at a time. Lanes without a
// query are left out.
constexpr int state_numbers = query_tiles * (head_size / 16 + 1) * 32;  // of 16 bytes

__device__ inline bool has_queries(int t) {
  return 8 * t + threadIdx.x % 4 * 2 < queries_per_kv_head;
}

__device__ inline void store(const TileState& state, float4* to) {
#pragma unroll
  for (int t = 0; t < query_tiles; ++t) {
    if (!has_queries(t)) continue;
    float4* mine = to + t * (head_size / 16 + 1) * 32 + threadIdx.x % 32;
    mine[0] = make_float4(state.m[t][0], state.l[t][0], state.m[t][1], state.l[t][1]);
#pragma unroll
    for (int d = 0; d < head_size / 16; ++d) {
      const float* acc = state.acc[t][d];
      mine[(d + 1) * 32] = make_float4(acc[0], acc[1], acc[2], acc[3]);
    }
  }
}

// Takes in all the tokens that another state has seen: SoftmaxState.merge of lesson 03.
__device__ inline void merge(TileState& state, const float4* other) {
#pragma unroll
  for (int t = 0; t < query_tiles; ++t) {
    if (!has_queries(t)) continue;
    const float4* its = other + t * (head_size / 16 + 1) * 32 + threadIdx.x % 32;
    float4 ml = its[0];
    float mine[2], theirs[2], its_m[2] = {ml.x, ml.z}, its_l[2] = {ml.y, ml.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m = fmaxf(state.m[t][i], its_m[i]), finite = m == -INFINITY ? 0.0f : m;
      mine[i] = __expf(state.m[t][i] - finite);
      theirs[i] = __expf(its_m[i] - finite);
      state.m[t][i] = m;
      state.l[t][i] = mine[i] * state.l[t][i] + theirs[i] * its_l[i];
    }
#pragma unroll
    for (int d = 0; d < head_size / 16; ++d) {
      float4 acc = its[(d + 1) * 32];
      state.acc[t][d][0] = mine[0] * state.acc[t][d][0] + theirs[0] * acc.x;
      state.acc[t][d][1] = mine[1] * state.acc[t][d][1] + theirs[1] * acc.y;
      state.acc[t][d][2] = mine[0] * state.acc[t][d][2] + theirs[0] * acc.z;
      state.acc[t][d][3] = mine[1] * state.acc[t][d][3] + theirs[1] * acc.w;
    }
  }
}

// Merges the states of warps that share a head into the first of these warps. Warp w has head
// w % heads_at_once. Every thread of the block calls it.
//   states: room for all warps but the first
__device__ inline void merge_warps(TileState& state, float4 (*states)[state_numbers],
                                   int heads_at_once) {
  int warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
  if (heads_at_once == num_warps) return;
  __syncthreads();  // no warp still reads the states of the last call
  if (warp >= heads_at_once) store(state, states[warp - 1]);
  __syncthreads();
  if (warp >= heads_at_once) return;
  for (int other = warp + heads_at_once; other < num_warps; other += heads_at_once)
    merge(state, states[other - 1]);
}

// Calls give(query, dim, o, m, l) for each of the lane's queries and each 8 dims in a row. o
// is divided by l, and is zeros if there were no tokens. All lanes call it together.
template <typename Give>
__device__ void finish(const TileState& state, Give give) {
  int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4;
#pragma unroll
  for (int t = 0; t < query_tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float l = state.l[t][i];
      for (int distance = 4; distance < 32; distance *= 2)
        l += __shfl_xor_sync(0xffffffff, l, distance);
      float factor = l == 0.0f ? 0.0f : 1.0f / l;
      int query = 8 * t + 2 * s + i;
      if (query >= queries_per_kv_head) continue;
#pragma unroll
      for (int d = 0; d < head_size / 64; ++d) {
        float o[8];
        for (int j = 0; j < 8; ++j) o[j] = factor * state.acc[t][4 * d + j / 2][i + j % 2 * 2];
        give(query, (d / halves * 8 + r) * per_chunk + d % halves * 8, o, state.m[t][i], l);
      }
    }
  }
}

// Writes the result to `out` (queries_per_kv_head, head_size), each number times `scale`.
__device__ inline void write_out(const TileState& state, Number* out, float scale = 1.0f) {
  finish(state, [&](int query, int dim, const float (&o)[8], float, float) {
    *reinterpret_cast<uint4*>(out + query * head_size + dim) = make_uint4(
        pack<Number>(scale * o[0], scale * o[1]), pack<Number>(scale * o[2], scale * o[3]),
        pack<Number>(scale * o[4], scale * o[5]), pack<Number>(scale * o[6], scale * o[7]));
  });
}
