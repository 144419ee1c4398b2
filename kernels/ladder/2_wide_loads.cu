// Rung 2: 16 bytes at a time. Neighbouring lanes read neighbouring bytes of one row, so a load
// takes whole lines of memory and uses all of their bytes. And each group of lanes asks for
// four rows before it uses the first.
#include <cuda_runtime.h>

#include "../paged_values.cuh"
#include "wide_values.cuh"

// Pass 1 with wide loads. Each group takes the tokens group, group + num_groups, …, four at a
// time.
__device__ inline void wide_scores(const PagedAttentionParams& params, float* scores,
                                   int num_tokens) {
  Query query(params);
  int group = threadIdx.x / group_lanes;
  for (int first = group; first - group < num_tokens; first += rows_at_once * num_groups) {
    NextRows next(params, first, num_tokens);
    WideRow keys[rows_at_once];
    next.load(keys, params.k_cache);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      // A shuffle needs all 32 lanes, so lanes without a token come here too.
      float score = wide_score(query.numbers, keys[i], params.scale);
      if (next.there[i] && threadIdx.x % group_lanes == 0) scores[next.token[i]] = score;
    }
  }
}

__global__ void __launch_bounds__(num_threads) wide_loads_kernel(PagedAttentionParams params) {
  extern __shared__ float shared_scores[];
  // The same sizes as before, but now the compiler knows them.
  params.head_size = head_size, params.block_size = block_size;
  float* scores = scores_of(params, shared_scores);
  int num_tokens = params.context_lens[blockIdx.x];
  wide_scores(params, scores, num_tokens);
  __syncthreads();  // softmax reads scores that other threads have written
  softmax(scores, num_tokens);
  wide_values(params, scores, num_tokens);
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  return launch(wide_loads_kernel, params, score_bytes(params), stream);
}
