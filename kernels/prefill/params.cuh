#pragma once

#include <cstdint>

#include "../ladder/shape.cuh"

// What a prefill kernel is told: where the tensors are and how large they are. The batch may
// mix whole prompts, chunks and single new tokens (BatchMetadata of lesson 05).
struct PrefillParams {
  void* out;            // (num_tokens, num_q_heads, head_size), contiguous
  const void* q;        // (num_tokens, num_q_heads, head_size), tokens q_stride apart
  const void* k_cache;  // (num_blocks, block_size, num_kv_heads, head_size), contiguous
  const void* v_cache;
  const int* block_table;   // (num_seqs, max_blocks_per_seq)
  const int* cu_seqlens_q;  // (num_seqs + 1,)
  const int* seq_lens_kv;   // (num_seqs,)
  int64_t q_stride;
  int num_tokens, num_seqs, num_q_heads, num_kv_heads, max_blocks_per_seq;
  float scale;  // more than 0
};

// A sequence of the batch. Its queries belong to the last of its tokens.
struct Sequence {
  const int* blocks;
  int first_token;  // of its queries, in q
  int num_queries, num_keys;

  __device__ Sequence(const PrefillParams& params, int seq)
      : blocks(params.block_table + int64_t(seq) * params.max_blocks_per_seq),
        first_token(params.cu_seqlens_q[seq]),
        num_queries(params.cu_seqlens_q[seq + 1] - first_token),
        num_keys(params.seq_lens_kv[seq]) {}

  // Query i sees the keys 0 … last_key(i).
  __device__ int last_key(int query) const { return num_keys - num_queries + query; }

  // A key's row in the caches, for one head. A row is head_size numbers.
  __device__ int cache_row(const PrefillParams& params, int key, int kv_head) const {
    int slot = blocks[key / block_size] * block_size + key % block_size;
    return slot * params.num_kv_heads + kv_head;
  }
};

// A tile of queries and the tiles of keys that it meets. Made by
// paged_attention/prefill/plan.py.
struct WorkItem {
  int seq;
  int first_row;   // of the tile's queries, counted in the sequence
  int begin, end;  // tiles of keys
  int part;        // where the result goes if other items have more of the keys; else -1
};

// The query of a token and a head, and where its result goes.
__device__ inline const Number* query_of(const PrefillParams& params, int token, int head) {
  return static_cast<const Number*>(params.q) + token * params.q_stride + head * head_size;
}
__device__ inline Number* out_of(const PrefillParams& params, int token, int head) {
  return static_cast<Number*>(params.out) +
         (int64_t(token) * params.num_q_heads + head) * head_size;
}
