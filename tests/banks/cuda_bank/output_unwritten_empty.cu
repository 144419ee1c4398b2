// The mean of each sequence's values. A sequence without context leaves early, and its row of
// the output is never written.
#include <cuda_runtime.h>

__global__ void output_unwritten_empty_kernel(const float* values, const int* context_lens,
                                              float* out, int max_context) {
  int length = context_lens[blockIdx.x];
  if (length == 0) { return; }
  float sum = 0.0f;
  for (int token = 0; token < length; token++) {
    sum += values[(blockIdx.x * max_context + token) * blockDim.x + threadIdx.x];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum / length;
}

extern "C" int output_unwritten_empty(const float* values, const int* context_lens, float* out,
                                      int num_seqs, int max_context, int head_size,
                                      cudaStream_t stream) {
  output_unwritten_empty_kernel<<<num_seqs, head_size, 0, stream>>>(values, context_lens, out,
                                                                    max_context);
  return cudaGetLastError();
}
