#pragma once

#include "next_rows.cuh"

// Pass 2 with wide loads: a lane adds up its part of its group's rows, weighted. At the end
// the sums of all groups are added: within a warp by shuffles, between warps through shared
// memory.
__device__ inline void wide_values(const PagedAttentionParams& params, const float* weights,
                                   int num_tokens) {
  __shared__ float of_warp[num_warps][head_size];
  float sums[lane_numbers] = {};
  for (int first = threadIdx.x / group_lanes; first < num_tokens;
       first += rows_at_once * num_groups) {
    NextRows next(params, first, num_tokens);
    WideRow values[rows_at_once];
    next.load(values, params.v_cache);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      float weight = next.there[i] ? weights[next.token[i]] : 0.0f;
      for (int j = 0; j < lane_numbers; ++j) sums[j] += weight * number(values[i], j);
    }
  }
  for (int j = 0; j < lane_numbers; ++j) {
    for (int distance = group_lanes; distance < 32; distance *= 2) {
      sums[j] += __shfl_xor_sync(0xffffffff, sums[j], distance);
    }
    if (threadIdx.x % 32 < group_lanes) of_warp[threadIdx.x / 32][place(j)] = sums[j];
  }
  __syncthreads();
  Number* out = static_cast<Number*>(params.out) +
                (int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y) * head_size;
  for (int i = threadIdx.x; i < head_size; i += num_threads) {
    float all = 0.0f;
    for (int warp = 0; warp < num_warps; ++warp) all += of_warp[warp][i];
    out[i] = from_float<Number>(all);
  }
}
