// The two steps that follow the scores, in shared memory or in the workspace.
template <typename T>
__global__ void values_kernel(PagedAttentionParams params) {
  extern __shared__ float shared_scores[];
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  float* scores = params.scores ? params.scores + row * params.max_context_len : shared_scores;
  paged_scores<T>(params, scores);
  softmax(scores, params.context_lens[blockIdx.x]);
  paged_values<T>(params, scores);
}

extern "C" int values(PagedAttentionParams params, cudaStream_t stream) {
  dim3 grid(params.num_seqs, params.num_q_heads);
  size_t bytes = params.scores ? 0 : params.max_context_len * sizeof(float);
  if (params.dtype == 0) values_kernel<float><<<grid, 128, bytes, stream>>>(params);
  if (params.dtype == 1) values_kernel<__half><<<grid, 128, bytes, stream>>>(params);
  if (params.dtype == 2) values_kernel<__nv_bfloat16><<<grid, 128, bytes, stream>>>(params);
  return cudaGetLastError();
}

// The values alone, with weights that are in params.scores already.
__global__ void values_alone_kernel(PagedAttentionParams params) {
  int64_t row = int64_t(blockIdx.x) * params.num_q_heads + blockIdx.y;
  paged_values<float>(params, params.scores + row * params.max_context_len);
}

extern "C" int values_alone(PagedAttentionParams params, cudaStream_t stream) {
  values_alone_kernel<<<dim3(params.num_seqs, params.num_q_heads), 128, 0, stream>>>(params);
  return cudaGetLastError();
}
