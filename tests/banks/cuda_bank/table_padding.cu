// Sums a sequence's keys, one thread for each element. It walks the whole row of the table,
// and so takes the padding, -1, for a block.
#include <cuda_runtime.h>

__global__ void table_padding_kernel(const float* k_cache, const int* block_table, float* out,
                                     int max_blocks, int block_size) {
  int element = threadIdx.x;
  float sum = 0.0f;
  for (int token = 0; token < max_blocks * block_size; token++) {
    int block = block_table[blockIdx.x * max_blocks + token / block_size];
    int row = block * block_size + token % block_size;
    sum += k_cache[row * blockDim.x + element];  // FAULT
  }
  out[blockIdx.x * blockDim.x + element] = sum;
}

extern "C" int table_padding(const float* k_cache, const int* block_table, float* out,
                             int num_seqs, int max_blocks, int block_size, int head_size,
                             cudaStream_t stream) {
  table_padding_kernel<<<num_seqs, head_size, 0, stream>>>(k_cache, block_table, out,
                                                           max_blocks, block_size);
  return cudaGetLastError();
}
