// Rung 8: rung 7 over caches of 8-bit numbers (KvNumber is Fp8 in shape.cuh), which are half
// the bytes. fp8.cuh widens them to 16 bits just before the matrix products. A head's keys and
// values were divided by a scale when they were written. Here the scores are multiplied by the
// scale of the keys, and the output by the scale of the values.
#include "7_balanced.cu"

// k_scales, v_scales: (num_kv_heads,).
extern "C" int paged_attention_fp8(PagedAttentionParams params, const float* k_scales,
                                   const float* v_scales, const int* items, void* parts,
                                   int* arrived, int num_blocks, int heads_at_once,
                                   cudaStream_t stream) {
  return launch(params,
                {reinterpret_cast<const WorkItem*>(items), static_cast<float4*>(parts),
                 arrived, k_scales, v_scales, heads_at_once},
                num_blocks, stream);
}
