// params.scores: (num_seqs, num_q_heads, max_context_len), what paged_scores writes there.
template <typename T>
__global__ void scores_kernel(PagedAttentionParams params) {
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  paged_scores<T>(params, params.scores + row * params.max_context_len);
}

extern "C" int scores(PagedAttentionParams params, cudaStream_t stream) {
  dim3 grid(params.num_seqs, params.num_q_heads);
  if (params.dtype == 0) scores_kernel<float><<<grid, 128, 0, stream>>>(params);
  if (params.dtype == 1) scores_kernel<__half><<<grid, 128, 0, stream>>>(params);
  if (params.dtype == 2) scores_kernel<__nv_bfloat16><<<grid, 128, 0, stream>>>(params);
  return cudaGetLastError();
}
