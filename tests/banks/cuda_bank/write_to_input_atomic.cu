// Counts how often each block is used, in the very table that says which blocks are used.
#include <cuda_runtime.h>

__global__ void write_to_input_atomic_kernel(const int* block_table, int* out) {
  int block = block_table[threadIdx.x];
  out[threadIdx.x] = block;
  atomicAdd((int*)&block_table[block], 1);  // FAULT
}

extern "C" int write_to_input_atomic(const int* block_table, int* out, int n,
                                     cudaStream_t stream) {
  write_to_input_atomic_kernel<<<1, n, 0, stream>>>(block_table, out);
  return cudaGetLastError();
}
