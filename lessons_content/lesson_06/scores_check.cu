// params.scores: (num_seqs, num_q_heads, max_context_len), what paged_scores writes there.
template <typename T>
__global__ void scores_kernel(PagedAttentionParams params) {
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  paged_scores<T>(params, params.scores + row * params.max_context_len);
}

// The same, and then what the next step does: without waiting, each thread reads the scores
// that it owns. params.out: float, as long as params.scores, with 0 past a context.
template <typename T>
__global__ void owners_kernel(PagedAttentionParams params) {
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  float* scores = params.scores + row * params.max_context_len;
  float* out = static_cast<float*>(params.out) + row * params.max_context_len;
  paged_scores<T>(params, scores);
  for (int token = threadIdx.x; token < params.max_context_len; token += blockDim.x) {
    out[token] = token < params.context_lens[blockIdx.x] ? scores[token] : 0.0f;
  }
}

template <typename T>
int launch_both(PagedAttentionParams params, cudaStream_t stream) {
  dim3 grid(params.num_seqs, params.num_q_heads);
  scores_kernel<T><<<grid, 128, 0, stream>>>(params);
  owners_kernel<T><<<grid, 128, 0, stream>>>(params);
  return cudaGetLastError();
}

extern "C" int scores(PagedAttentionParams params, cudaStream_t stream) {
  if (params.dtype == 0) return launch_both<float>(params, stream);
  if (params.dtype == 1) return launch_both<__half>(params, stream);
  return launch_both<__nv_bfloat16>(params, stream);
}
