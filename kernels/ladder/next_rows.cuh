#pragma once

#include "wide_score.cuh"

// The lane's part of the block's query, as floats.
struct Query {
  float numbers[lane_numbers];

  __device__ Query(const PagedAttentionParams& params) {
    const Number* q = static_cast<const Number*>(params.q) + blockIdx.x * params.q_stride +
                      blockIdx.y * head_size;
    for (int i = 0; i < lane_numbers; ++i) numbers[i] = to_float(q[place(i)]);
  }
};

// The rows that a group reads next: those of the tokens first, first + num_groups, …, as far
// as there are tokens. All four are looked up before any is read, so no row waits for the
// lookup of another.
struct NextRows {
  int token[rows_at_once];
  bool there[rows_at_once];
  int64_t offset[rows_at_once];

  __device__ NextRows(const PagedAttentionParams& params, int first, int num_tokens) {
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      token[i] = first + i * num_groups;
      there[i] = token[i] < num_tokens;
      offset[i] = cache_offset(params, blockIdx.x, there[i] ? token[i] : num_tokens - 1,
                               blockIdx.y / queries_per_kv_head);
    }
  }
  // Asks for the rows of a cache. Rows without a token become zeros. Nothing here waits for
  // the numbers.
  __device__ void load(WideRow (&rows)[rows_at_once], const void* cache) const {
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      rows[i] = {};
      if (there[i]) rows[i] = load_row(static_cast<const KvNumber*>(cache) + offset[i]);
    }
  }
};
