// Rung 0: the two passes of lesson 06, with the softmax by a single thread. That thread goes
// over all scores, and the other 127 wait. This is where the ladder begins.
#include <cuda_runtime.h>

#include "../paged_scores.cuh"
#include "../paged_values.cuh"
#include "launch.cuh"

// Turns a row of scores into weights, in place. One thread calls it.
__device__ inline void serial_softmax(float* row, int length) {
  float most = -INFINITY, total = 0.0f;
  for (int i = 0; i < length; ++i) most = fmaxf(most, row[i]);
  for (int i = 0; i < length; ++i) {
    row[i] = expf(row[i] - most);
    total += row[i];
  }
  for (int i = 0; i < length; ++i) row[i] /= total;
}

__global__ void serial_softmax_kernel(PagedAttentionParams params) {
  extern __shared__ float shared_scores[];
  float* scores = scores_of(params, shared_scores);
  paged_scores<Number>(params, scores);
  __syncthreads();  // all scores are there
  if (threadIdx.x == 0) serial_softmax(scores, params.context_lens[blockIdx.x]);
  __syncthreads();  // all weights are there
  paged_values<Number>(params, scores);
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  return launch(serial_softmax_kernel, params, score_bytes(params), stream);
}
