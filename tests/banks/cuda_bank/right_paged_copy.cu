// Writes new keys and values into their slots of the pool, in place. Tokens without a slot,
// -1, are padding and are left out.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void right_paged_copy_kernel(const __half* keys, const __half* values,
                                        __half* k_cache, __half* v_cache,
                                        const int64_t* slot_mapping, int block_size,
                                        int64_t block_stride, int row_size) {
  int64_t slot = slot_mapping[blockIdx.x];
  if (slot < 0) return;
  int64_t row = slot / block_size * block_stride + slot % block_size * row_size;
  for (int element = threadIdx.x; element < row_size; element += blockDim.x) {
    k_cache[row + element] = keys[blockIdx.x * row_size + element];
    v_cache[row + element] = values[blockIdx.x * row_size + element];
  }
}

extern "C" int right_paged_copy(const __half* keys, const __half* values, __half* k_cache,
                                __half* v_cache, const int64_t* slot_mapping, int num_tokens,
                                int block_size, int64_t block_stride, int row_size,
                                cudaStream_t stream) {
  right_paged_copy_kernel<<<num_tokens, 64, 0, stream>>>(
      keys, values, k_cache, v_cache, slot_mapping, block_size, block_stride, row_size);
  return cudaGetLastError();
}
