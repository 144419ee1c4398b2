// Sums a sequence's keys. The context is longer than its row of the table, which is the last:
// the read goes past the table itself.
#include <cuda_runtime.h>

__global__ void bounds_table_row_kernel(const float* k_cache, const int* block_table,
                                        float* out, int context_len, int block_size) {
  float sum = 0.0f;
  for (int token = 0; token < context_len; token++) {
    int block = block_table[token / block_size];  // FAULT
    sum += k_cache[(block * block_size + token % block_size) * blockDim.x + threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

extern "C" int bounds_table_row(const float* k_cache, const int* block_table, float* out,
                                int context_len, int block_size, int head_size,
                                cudaStream_t stream) {
  bounds_table_row_kernel<<<1, head_size, 0, stream>>>(k_cache, block_table, out, context_len,
                                                       block_size);
  return cudaGetLastError();
}
