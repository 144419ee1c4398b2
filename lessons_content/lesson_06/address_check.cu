// params.out: int64 (num_seqs, num_tokens, num_kv_heads). A block for each sequence, a thread
// for each token.
__global__ void offsets_kernel(PagedAttentionParams params) {
  int seq = blockIdx.x, token = threadIdx.x;
  int64_t* out = static_cast<int64_t*>(params.out) +
                 (int64_t(seq) * blockDim.x + token) * params.num_kv_heads;
  for (int head = 0; head < params.num_kv_heads; ++head)
    out[head] = cache_offset(params, seq, token, head);
}

extern "C" int offsets(PagedAttentionParams params, cudaStream_t stream) {
  offsets_kernel<<<params.num_seqs, params.max_blocks_per_seq * params.block_size, 0,
                   stream>>>(params);
  return cudaGetLastError();
}
