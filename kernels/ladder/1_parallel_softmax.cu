// Rung 1: all threads take part in the softmax, each with its own scores. Shuffles combine the
// maxima and the sums. The threads no longer wait for a single one. This is the kernel of
// lesson 06 as you left it.
#include <cuda_runtime.h>

#include "../paged_scores.cuh"
#include "../paged_values.cuh"
#include "launch.cuh"

__global__ void parallel_softmax_kernel(PagedAttentionParams params) {
  extern __shared__ float shared_scores[];
  float* scores = scores_of(params, shared_scores);
  paged_scores<Number>(params, scores);
  softmax(scores, params.context_lens[blockIdx.x]);
  paged_values<Number>(params, scores);
}

extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) {
  return launch(parallel_softmax_kernel, params, score_bytes(params), stream);
}
