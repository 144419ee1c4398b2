#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

// Attention of each sequence's new token over its context, in float32.
void attend(torch::Tensor out, torch::Tensor q, torch::Tensor k_cache, torch::Tensor v_cache,
            torch::Tensor block_table, torch::Tensor context_lens, int64_t max_context_len) {
  for (torch::Tensor tensor : {out, q, k_cache, v_cache}) {
    TORCH_CHECK(tensor.scalar_type() == torch::kFloat32 && tensor.is_contiguous(),
                "out, q, k_cache and v_cache must be contiguous and float32");
  }
  PagedAttentionParams params = {};
  params.out = out.data_ptr();
  params.q = q.data_ptr();
  params.k_cache = k_cache.data_ptr();
  params.v_cache = v_cache.data_ptr();
  params.block_table = block_table.data_ptr<int>();
  params.context_lens = context_lens.data_ptr<int>();
  params.q_stride = q.stride(0);
  params.num_seqs = q.size(0);
  params.num_q_heads = q.size(1);
  params.num_kv_heads = k_cache.size(2);
  params.head_size = q.size(2);
  params.block_size = k_cache.size(1);
  params.max_blocks_per_seq = block_table.size(1);
  params.max_context_len = max_context_len;
  params.scale = 1 / std::sqrt(float(params.head_size));
  int error = paged_attention(params, c10::cuda::getCurrentCUDAStream());
  TORCH_CHECK(error == 0, cudaGetErrorString(cudaError_t(error)));
}
