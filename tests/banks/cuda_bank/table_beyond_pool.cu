// Sums a sequence's keys as it should. The table is stale: it names a block that the pool does
// not have.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void table_beyond_pool_kernel(const __half* k_cache, const int* block_table,
                                         const int* context_lens, float* out, int max_blocks,
                                         int block_size) {
  const int* row = block_table + blockIdx.x * max_blocks;
  float sum = 0.0f;
  for (int token = 0; token < context_lens[blockIdx.x]; token++) {
    long long slot =
        static_cast<long long>(row[token / block_size]) * block_size + token % block_size;
    sum += __half2float(k_cache[slot * blockDim.x + threadIdx.x]);  // FAULT
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" int table_beyond_pool(const __half* k_cache, const int* block_table,
                                 const int* context_lens, float* out, int num_seqs,
                                 int max_blocks, int block_size, int head_size,
                                 cudaStream_t stream) {
  table_beyond_pool_kernel<<<num_seqs, head_size, 0, stream>>>(
      k_cache, block_table, context_lens, out, max_blocks, block_size);
  return cudaGetLastError();
}
