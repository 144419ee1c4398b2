#include <cuda_runtime.h>
#include <cstdint>

struct AdvanceParams {
  // of all sequences, by rows of the block table; after a row's last block anything may be
  const int64_t* last_tokens;  // (max_num_seqs,)
  int* lengths;                // (max_num_seqs,): tokens of a sequence that are in the cache
  const int* block_table;      // (max_num_seqs, max_blocks_per_seq)
  // of the batch
  const int* rows;     // (num_seqs,); -1 for a row of padding
  int64_t* tokens;     // (num_seqs,)
  int64_t* positions;  // (num_seqs,)
  int64_t* slots;      // (num_seqs,); -1 for padding, which is written nowhere
  int* context_lens;   // (num_seqs,); 0 for padding
  int* batch_table;    // (num_seqs, max_blocks_per_seq)
  int num_seqs, max_blocks_per_seq, block_size;
};

// Moves each sequence of the batch one token on: its next token, at its next position.
// lengths grows by one, and batch_table gets the blocks of all its tokens, the new one's too.
// For padding, only tokens (0), positions (0), slots and context_lens are written.
__global__ void advance_kernel(AdvanceParams params) {
  // BEGIN SOLUTION 10.3
  int seq = blockIdx.x, row = params.rows[seq], width = params.max_blocks_per_seq;
  int position = row < 0 ? 0 : params.lengths[row];
  const int* blocks = params.block_table + int64_t(row) * width;
  int num_blocks = row < 0 ? 0 : position / params.block_size + 1;
  for (int i = threadIdx.x; i < num_blocks; i += blockDim.x)
    params.batch_table[int64_t(seq) * width + i] = blocks[i];
  __syncthreads();  // every thread has read the length
  if (threadIdx.x > 0) return;
  params.tokens[seq] = row < 0 ? 0 : params.last_tokens[row];
  params.positions[seq] = position;
  params.context_lens[seq] = row < 0 ? 0 : position + 1;
  params.slots[seq] = row < 0 ? -1
                              : int64_t(blocks[num_blocks - 1]) * params.block_size +
                                    position % params.block_size;
  if (row >= 0) params.lengths[row] = position + 1;
  // END SOLUTION
}

extern "C" int advance(AdvanceParams params, cudaStream_t stream) {
  advance_kernel<<<params.num_seqs, 128, 0, stream>>>(params);
  return cudaGetLastError();
}
