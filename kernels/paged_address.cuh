#pragma once

#include <cstdint>

#include "paged_params.cuh"

// Where a token's key or value begins: how many elements after the start of k_cache or
// v_cache. Large pools have more than 2^31 elements.
//   seq: the row of the block table
//   token: its place in the sequence, from 0
__device__ inline int64_t cache_offset(const PagedAttentionParams& params, int seq, int token,
                                       int kv_head) {
  // BEGIN SOLUTION 6.2
  const int* row = params.block_table + int64_t(seq) * params.max_blocks_per_seq;
  int64_t slot =
      int64_t(row[token / params.block_size]) * params.block_size + token % params.block_size;
  return (slot * params.num_kv_heads + kv_head) * params.head_size;
  // END SOLUTION
}
