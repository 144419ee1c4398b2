// Rung 9: rung 7 with a plan that is made on the device (plan.cuh), once for all layers of a
// step. The host reads no length, and the launch is the same for any lengths: there is a block
// for each multiprocessor, and some may find no work. So one CUDA graph serves all batches.
#include "../early.cuh"
#include "check_table.cuh"
#include "plan.cuh"

// Zeros for the sequences without tokens. The blocks take them in turn.
__device__ inline void write_zeros(const PagedAttentionParams& params, const int* empty,
                                   int num_empty) {
  for (int i = blockIdx.x; i < num_empty; i += gridDim.x) {
    uint4* out = reinterpret_cast<uint4*>(out_row(params, empty[i], 0));
    for (int chunk = threadIdx.x; chunk < params.num_q_heads * head_size / 8;
         chunk += blockDim.x)
      out[chunk] = make_uint4(0, 0, 0, 0);
  }
}

__global__ void __launch_bounds__(num_warps * 32, 1)
    planned_kernel(PagedAttentionParams params, Work work, const PlanHeader* plan) {
  extern __shared__ uint4 memory[];
  let_next_begin();
  wait_for_previous();
  PlanHeader header = *plan;
  bool has_work = work.items[blockIdx.x].seq >= 0;
  write_zeros(params, reinterpret_cast<const int*>(plan + 1), header.num_empty);
  if (!has_work) return;
  work.heads_at_once = header.heads_at_once;
  attend_balanced(*reinterpret_cast<Shared*>(memory), params, work);
}

// items, header: as plan_work has written them. parts: room for the states of 2 * num_blocks
// parts. arrived: 2 * num_blocks zeros, before and after the launch. k_scales, v_scales:
// (num_kv_heads,), for caches of 8-bit numbers, else null. early: for launch_maybe_early.
extern "C" int paged_attention_planned(PagedAttentionParams params, const float* k_scales,
                                       const float* v_scales, const int* items,
                                       const int* header, void* parts, int* arrived,
                                       int num_blocks, int early, cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(
      planned_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  Work work = {reinterpret_cast<const WorkItem*>(items), static_cast<float4*>(parts), arrived,
               k_scales, v_scales};
  return launch_maybe_early<planned_kernel>(early, num_blocks, num_warps * 32, sizeof(Shared),
                                            stream, params, work,
                                            reinterpret_cast<const PlanHeader*>(header));
}
