#pragma once

#include <cmath>

#include "block_reduce.cuh"
#include "numbers.cuh"
#include "paged_address.cuh"

// Turns the scores into weights, in place. Thread t wrote the scores t, t + blockDim.x, ….
// Afterwards every thread may read every weight.
__device__ inline void softmax(float* scores, int num_tokens) {
  // BEGIN SOLUTION 6.5
  float largest = -INFINITY, sum = 0.0f;
  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x)
    largest = fmaxf(largest, scores[token]);
  largest = block_max(largest);
  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) {
    scores[token] = expf(scores[token] - largest);
    sum += scores[token];
  }
  sum = block_sum(sum);
  for (int token = threadIdx.x; token < num_tokens; token += blockDim.x) scores[token] /= sum;
  __syncthreads();
  // END SOLUTION
}

// Pass 2: the head's output, which is the weighted sum of the values. Each element of the head
// is computed by one thread. An empty context gives zeros.
template <typename T>
__device__ void paged_values(const PagedAttentionParams& params, const float* weights) {
  int seq = blockIdx.x, head = blockIdx.y;
  T* out_row = static_cast<T*>(params.out) +
               (int64_t(seq) * params.num_q_heads + head) * params.head_size;
  const T* v_cache = static_cast<const T*>(params.v_cache);
  // BEGIN SOLUTION 6.5
  int kv_head = head / (params.num_q_heads / params.num_kv_heads);
  int num_tokens = params.context_lens[seq];
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {
    float result = 0.0f;
    for (int token = 0; token < num_tokens; ++token) {
      result +=
          weights[token] * to_float(v_cache[cache_offset(params, seq, token, kv_head) + i]);
    }
    out_row[i] = from_float<T>(result);
  }
  // END SOLUTION
}
