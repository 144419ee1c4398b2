// Doubles the reversed numbers of those sequences that have any. The blocks of empty ones
// leave as a whole, before any barrier.
#include <cuda_runtime.h>

__global__ void right_blocks_leave_kernel(const float* x, const int* lengths, float* out) {
  __shared__ float tile[64];
  int length = lengths[blockIdx.x];
  int place = blockIdx.x * 64 + threadIdx.x;
  if (length == 0) {
    out[place] = 0.0f;
    return;
  }
  if (threadIdx.x < length) { tile[threadIdx.x] = x[place]; }
  __syncthreads();
  out[place] = threadIdx.x < length ? 2.0f * tile[length - 1 - threadIdx.x] : 0.0f;
}

extern "C" int right_blocks_leave(const float* x, const int* lengths, float* out, int num_seqs,
                                  cudaStream_t stream) {
  right_blocks_leave_kernel<<<num_seqs, 64, 0, stream>>>(x, lengths, out);
  return cudaGetLastError();
}
