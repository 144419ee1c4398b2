#pragma once

#include "../paged_params.cuh"
#include "shape.cuh"

// What rungs 0 to 3 have in common: one block of threads for each sequence and query head.
constexpr int num_threads = 128, num_warps = num_threads / 32;

// Where the block's scores are: in the workspace, if there is one, else in shared memory.
__device__ inline float* scores_of(const PagedAttentionParams& params, float* shared_scores) {
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  return params.scores ? params.scores + row * params.max_context_len : shared_scores;
}

// score_bytes: dynamic shared memory for the scores. Returns 0, or the error.
template <typename Kernel>
int launch(Kernel kernel, const PagedAttentionParams& params, int score_bytes,
           cudaStream_t stream) {
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, score_bytes);
  if (error != cudaSuccess) return error;
  dim3 grid(params.num_seqs, params.num_q_heads);
  kernel<<<grid, num_threads, score_bytes, stream>>>(params);
  return cudaGetLastError();
}

inline int score_bytes(const PagedAttentionParams& params) {
  return params.scores ? 0 : params.max_context_len * sizeof(float);
}
