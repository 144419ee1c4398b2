#pragma once

#include "numbers.cuh"
#include "paged_address.cuh"

// Pass 1: scores[token] = scale * (q · key), for all tokens of this block's sequence and head.
// Thread t writes the scores t, t + blockDim.x, … as far as there are tokens. The next step
// relies on this.
template <typename T>
__device__ void paged_scores(const PagedAttentionParams& params, float* scores) {
  int seq = blockIdx.x, head = blockIdx.y;
  const T* q_row =
      static_cast<const T*>(params.q) + seq * params.q_stride + head * params.head_size;
  const T* k_cache = static_cast<const T*>(params.k_cache);
  // All threads need the query. From here they can read it without going to global memory.
  __shared__ float q[256];
  // BEGIN SOLUTION 6.4
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) q[i] = to_float(q_row[i]);
  __syncthreads();
  int kv_head = head / (params.num_q_heads / params.num_kv_heads);
  int num_tokens = params.context_lens[seq];
  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) {
    const T* key = k_cache + cache_offset(params, seq, token, kv_head);
    float product = 0.0f;
    for (int i = 0; i < params.head_size; ++i) product += q[i] * to_float(key[i]);
    scores[token] = params.scale * product;
  }
  // END SOLUTION
}
