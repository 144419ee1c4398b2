#pragma once

#include <cstdint>

// What the paged kernel is told: where the tensors are, how large they are, what they hold.
struct PagedAttentionParams {
  void* out;            // (num_seqs, num_q_heads, head_size), contiguous
  const void* q;        // (num_seqs, num_q_heads, head_size), sequences q_stride apart
  const void* k_cache;  // (num_blocks, block_size, num_kv_heads, head_size), contiguous
  const void* v_cache;
  const int* block_table;   // (num_seqs, max_blocks_per_seq)
  const int* context_lens;  // (num_seqs,)
  float* scores;            // (num_seqs, num_q_heads, max_context_len); null: in shared memory
  int64_t q_stride;
  int num_seqs, num_q_heads, num_kv_heads, head_size;
  int block_size, max_blocks_per_seq, max_context_len;
  int dtype;  // 0 float, 1 half, 2 bfloat16
  float scale;
};
