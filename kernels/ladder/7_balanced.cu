// Rung 7: no more blocks than can run at once. Each gets about the same number of tiles, from
// one sequence or from several. Loads continue from one sequence to the next. The last block
// to finish a sequence combines its parts, so there is only one launch. Where sequences are
// many and unequal, the plan may give each of them blocks of its own instead.
#include "balanced.cuh"

__global__ void __launch_bounds__(num_warps * 32, 1)
    balanced_kernel(PagedAttentionParams params, Work work) {
  extern __shared__ uint4 memory[];  // 16 bytes each, so that a copy may begin at any of them
  attend_balanced(*reinterpret_cast<Shared*>(memory), params, work);
}

inline int launch(const PagedAttentionParams& params, const Work& work, int num_blocks,
                  cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(
      balanced_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  balanced_kernel<<<num_blocks, num_warps * 32, sizeof(Shared), stream>>>(params, work);
  return cudaGetLastError();
}

// items: the WorkItems. parts: room for the states of all parts. arrived: zeros before and
// after the launch.
extern "C" int paged_attention(PagedAttentionParams params, const int* items, void* parts,
                               int* arrived, int num_blocks, int heads_at_once,
                               cudaStream_t stream) {
  return launch(params,
                {reinterpret_cast<const WorkItem*>(items), static_cast<float4*>(parts),
                 arrived, nullptr, nullptr, heads_at_once},
                num_blocks, stream);
}
