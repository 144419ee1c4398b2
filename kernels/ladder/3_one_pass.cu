// Rung 3: the online softmax of lesson 03. Keys and values are read in one pass, and no score
// is kept. Each group of lanes has its own state (m, l, acc). Groups wait for each other only
// at the end, where the states are merged.
#include <cuda_runtime.h>

#include "merge_states.cuh"
#include "next_rows.cuh"

// The state after a group's tokens: group, group + num_groups, …, four at a time.
__device__ inline SoftmaxState one_pass(const PagedAttentionParams& params, int num_tokens) {
  Query query(params);
  SoftmaxState state = no_tokens();
  int group = threadIdx.x / group_lanes;
  for (int first = group; first - group < num_tokens; first += rows_at_once * num_groups) {
    NextRows next(params, first, num_tokens);
    WideRow keys[rows_at_once], values[rows_at_once];
    next.load(keys, params.k_cache);
    next.load(values, params.v_cache);
    float scores[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      // A shuffle needs all 32 lanes, so lanes without a token come here too.
      float score = wide_score(query.numbers, keys[i], params.scale);
      scores[i] = next.there[i] ? score : -INFINITY;
    }
    take_in(state, scores, values);
  }
  return state;
}

__global__ void __launch_bounds__(num_threads) one_pass_kernel(PagedAttentionParams params) {
  // The same sizes as before, but now the compiler knows them.
  params.head_size = head_size, params.block_size = block_size;
  SoftmaxState state = one_pass(params, params.context_lens[blockIdx.x]);
  merge_groups(state);
  if (threadIdx.x >= group_lanes) return;
  Number* out = static_cast<Number*>(params.out) +
                (int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y) * head_size;
  for (int i = 0; i < lane_numbers; ++i)
    out[place(i)] = from_float<Number>(state.l == 0.0f ? 0.0f : state.acc[i] / state.l);
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  return launch(one_pass_kernel, params, 0, stream);
}
