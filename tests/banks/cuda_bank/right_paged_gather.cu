// The mean of each sequence's keys, found through the block table. Only tokens of the context
// are looked up; an empty one gives zeros.
#include <cassert>
#include <cuda_runtime.h>

__device__ __forceinline__ int64_t right_paged_gather_row(const int* table_row, int token,
                                                          int block_size) {
  int block = __ldg(table_row + token / block_size);
  assert(block >= 0);
  return static_cast<int64_t>(block) * block_size + token % block_size;
}

__global__ void right_paged_gather_kernel(const float* k_cache, const int* block_table,
                                          const int* context_lens, float* out, int max_blocks,
                                          int block_size) {
  const int* table_row = block_table + blockIdx.x * max_blocks;
  int context_len = context_lens[blockIdx.x];
  float sum = 0.0f;
  for (int token = 0; token < context_len; ++token) {
    sum += k_cache[right_paged_gather_row(table_row, token, block_size) * blockDim.x +
                   threadIdx.x];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = context_len > 0 ? sum / context_len : 0.0f;
}

extern "C" int right_paged_gather(const float* k_cache, const int* block_table,
                                  const int* context_lens, float* out, int num_seqs,
                                  int max_blocks, int block_size, int head_size,
                                  cudaStream_t stream) {
  right_paged_gather_kernel<<<num_seqs, head_size, 0, stream>>>(
      k_cache, block_table, context_lens, out, max_blocks, block_size);
  return cudaGetLastError();
}
