#pragma once

#include "shape.cuh"

// Counts the sequences with a length, or with an entry of the table that they need, through
// which attention would read outside the pool. Grid: a block of threads for each sequence.
__global__ void check_table_kernel(const int* block_table, const int* context_lens,
                                   int max_blocks_per_seq, int num_blocks, int* num_wrong) {
  int64_t length = context_lens[blockIdx.x];
  bool wrong = length < 0 || length > int64_t(max_blocks_per_seq) * block_size;
  int needed = wrong ? 0 : (length + block_size - 1) / block_size;
  const int* row = block_table + int64_t(blockIdx.x) * max_blocks_per_seq;
  for (int i = threadIdx.x; i < needed; i += blockDim.x)
    wrong = wrong || row[i] < 0 || row[i] >= num_blocks;
  if (__syncthreads_or(wrong) && threadIdx.x == 0) atomicAdd(num_wrong, 1);
}

// block_table: (num_seqs, max_blocks_per_seq). num_wrong: one number, to which it adds.
extern "C" int check_table(const int* block_table, const int* context_lens, int num_seqs,
                           int max_blocks_per_seq, int num_blocks, int* num_wrong,
                           cudaStream_t stream) {
  check_table_kernel<<<num_seqs, 128, 0, stream>>>(block_table, context_lens,
                                                   max_blocks_per_seq, num_blocks, num_wrong);
  return cudaGetLastError();
}
