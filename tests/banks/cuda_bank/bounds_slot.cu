// Writes new keys into the pool. Padding tokens have the slot -1, and nobody looks.
#include <cuda_runtime.h>

__global__ void bounds_slot_kernel(const float* keys, const long long* slot_mapping,
                                   float* k_cache) {
  int token = blockIdx.x;
  long long slot = slot_mapping[token];
  // FAULT
  k_cache[slot * blockDim.x + threadIdx.x] = keys[token * blockDim.x + threadIdx.x];
}

extern "C" int bounds_slot(const float* keys, const long long* slot_mapping, float* k_cache,
                           int num_tokens, int head_size, cudaStream_t stream) {
  bounds_slot_kernel<<<num_tokens, head_size, 0, stream>>>(keys, slot_mapping, k_cache);
  return cudaGetLastError();
}
