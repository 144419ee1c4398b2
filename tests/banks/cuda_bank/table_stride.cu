// Sums a sequence's keys, but takes the number of heads for the length of a table row:
// sequence 1 reads the padding of sequence 0.
#include <cuda_runtime.h>

__device__ const float* table_stride_key(const float* k_cache, const int* row, int token,
                                         int block_size, int head_size) {
  return k_cache + (row[token / block_size] * block_size + token % block_size) * head_size;
}

__global__ void table_stride_kernel(const float* k_cache, const int* block_table,
                                    const int* context_lens, float* out, int num_heads,
                                    int block_size) {
  const int* row = block_table + blockIdx.x * num_heads;
  float sum = 0.0f;
  for (int token = 0; token < context_lens[blockIdx.x]; token++) {
    // FAULT
    sum += table_stride_key(k_cache, row, token, block_size, blockDim.x)[threadIdx.x];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" int table_stride(const float* k_cache, const int* block_table,
                            const int* context_lens, float* out, int num_seqs, int num_heads,
                            int block_size, int head_size, cudaStream_t stream) {
  table_stride_kernel<<<num_seqs, head_size, 0, stream>>>(k_cache, block_table, context_lens,
                                                          out, num_heads, block_size);
  return cudaGetLastError();
}
