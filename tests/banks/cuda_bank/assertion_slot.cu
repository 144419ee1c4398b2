// Writes keys into the pool, and asserts that each has a slot. One has none.
#include <cassert>
#include <cuda_runtime.h>

__global__ void assertion_slot_kernel(const float* keys, const long long* slot_mapping,
                                      float* k_cache) {
  long long slot = slot_mapping[blockIdx.x];
  assert(slot >= 0);  // FAULT
  k_cache[slot * blockDim.x + threadIdx.x] = keys[blockIdx.x * blockDim.x + threadIdx.x];
}

extern "C" int assertion_slot(const float* keys, const long long* slot_mapping, float* k_cache,
                              int num_tokens, int head_size, cudaStream_t stream) {
  assertion_slot_kernel<<<num_tokens, head_size, 0, stream>>>(keys, slot_mapping, k_cache);
  return cudaGetLastError();
}
