// Rung 0: each query as a decode. A block takes one query of one head, and goes over the keys
// that this query sees. Each key is read once for each query that sees it. This is lesson 07's
// kernel of one pass, for more queries than one.
#include <cuda_runtime.h>

#include "../ladder/merge_states.cuh"
#include "../ladder/wide_score.cuh"
#include "params.cuh"

// The sequence that a token of q belongs to: the last one that begins at or before the token.
// (Those without queries begin where the next one does.)
__device__ inline int sequence_of(const PrefillParams& params, int token) {
  int low = 0, high = params.num_seqs - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (params.cu_seqlens_q[middle] <= token) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Grid: (num_tokens, num_q_heads).
__global__ void __launch_bounds__(num_threads) each_query_kernel(PrefillParams params) {
  int token = blockIdx.x, head = blockIdx.y, group = threadIdx.x / group_lanes;
  Sequence sequence(params, sequence_of(params, token));
  int num_keys = sequence.last_key(token - sequence.first_token) + 1;
  float query[lane_numbers];
  for (int i = 0; i < lane_numbers; ++i)
    query[i] = to_float(query_of(params, token, head)[place(i)]);
  SoftmaxState state = no_tokens();
  for (int first = group; first - group < num_keys; first += rows_at_once * num_groups) {
    WideRow keys[rows_at_once] = {}, values[rows_at_once] = {};
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      int key = first + i * num_groups;
      if (key >= num_keys) continue;
      int64_t row = sequence.cache_row(params, key, head / queries_per_kv_head);
      keys[i] = load_row(static_cast<const Number*>(params.k_cache) + row * head_size);
      values[i] = load_row(static_cast<const Number*>(params.v_cache) + row * head_size);
    }
    float scores[rows_at_once];
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      // A shuffle needs all 32 lanes, so lanes without a key come here too.
      float score = wide_score(query, keys[i], params.scale);
      scores[i] = first + i * num_groups < num_keys ? score : -INFINITY;
    }
    take_in(state, scores, values);
  }
  merge_groups(state);
  if (threadIdx.x >= group_lanes) return;
  Number* out = out_of(params, token, head);
  for (int i = 0; i < lane_numbers; ++i)
    out[place(i)] = from_float<Number>(state.acc[i] / state.l);
}

extern "C" int paged_prefill(PrefillParams params, cudaStream_t stream) {
  dim3 grid(params.num_tokens, params.num_q_heads);
  each_query_kernel<<<grid, num_threads, 0, stream>>>(params);
  return cudaGetLastError();
}
