// Rung 5: what Hopper can do. One warp copies keys and values, a whole block at a time, by an
// engine that computes the addresses itself. Two groups of four warps multiply: the tensor
// cores read shared memory by themselves, and go on while the threads compute the softmax of
// the next tile. A block takes one item after the other, so that the copies of the next begin
// before the last one is done.
#include <cuda_runtime.h>

#include "attend_by_groups.cuh"
#include "combine.cuh"

// Grid: as many blocks as run at once. In every other round they take their work the other way
// round, as the earlier is the longer.
__device__ inline int work_of(int round) {
  return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

__device__ void copy_all(HopperShared& shared, const PrefillParams& params,
                         const WorkItem* items, int num_work, const CacheMap& keys,
                         const CacheMap& values) {
  BoxCopier copier(shared, params);
  for (int round = 0, work; (work = work_of(round)) < num_work; ++round) {
    step_together();  // as those that compute do when they have their queries
    copier.copy(items[work / params.num_kv_heads], work % params.num_kv_heads, keys, values);
    step_together(), step_together();  // and before and after they write their results
  }
}

__device__ void compute_all(HopperShared& shared, const PrefillParams& params,
                            const WorkItem* items, int num_work, Parts parts) {
  constexpr int heads = queries_per_kv_head;
  // From lane 0, so that the compiler knows that a warp's lanes have the same.
  int group = __shfl_sync(0xffffffff, threadIdx.x / group_threads, 0);
  uint4* queries = shared.queries + group * group_rows * row_chunks;
  int fills = 0;
  for (int round = 0, work; (work = work_of(round)) < num_work; ++round) {
    WorkItem item = items[work / params.num_kv_heads];
    TileRows<heads> rows(params, item, work % params.num_kv_heads * heads);
    copy_group_queries(queries, rows, group);
    wait_for_group(group);
    RowState<1> state;
    attend_by_groups(state, shared, queries, rows, item, group, fills);
    wait_for_group(group);  // all have used their queries, whose place the results take
    int first_row = threadIdx.x / 32 * 16;
    if (item.part < 0) write_out(state, shared.queries, rows, first_row);
    else if (first_row < rows.count()) write_part(state, parts, rows, item.part, first_row);
    wait_for_group(group);
  }
}

__global__ void __launch_bounds__(all_threads, 1)
    hopper_kernel(PrefillParams params, const WorkItem* items, int num_work, Parts parts,
                  const __grid_constant__ CacheMap keys,
                  const __grid_constant__ CacheMap values) {
  extern __shared__ __align__(1024) uint4 hopper_memory[];
  HopperShared& shared = *reinterpret_cast<HopperShared*>(hopper_memory);
  if (threadIdx.x == 0) shared.begin();
  __syncthreads();  // the barriers can be used
  if (threadIdx.x / group_threads == num_groups) {
    give_registers_to_others<copying_registers>();
    if (threadIdx.x / 32 == copying_warp)
      copy_all(shared, params, items, num_work, keys, values);
  } else {
    take_registers<computing_registers>();
    compute_all(shared, params, items, num_work, parts);
  }
}

// num_slots: how many blocks the GPU runs at once. The rest is as in rung 4.
extern "C" int paged_prefill(PrefillParams params, const int* items, const int* cut_tiles,
                             float* part_o, float* part_ml, int num_items, int num_cut_tiles,
                             int planned_rows, int planned_keys, int num_slots, int num_blocks,
                             cudaStream_t stream) {
  if (planned_rows != tile_rows || planned_keys != stage_keys) return cudaErrorInvalidValue;
  Parts parts{part_o, reinterpret_cast<float2*>(part_ml)};
  CacheMap keys, values;
  int error = map_cache(keys, params.k_cache, num_blocks, params.num_kv_heads);
  if (error == cudaSuccess)
    error = map_cache(values, params.v_cache, num_blocks, params.num_kv_heads);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(hopper_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 sizeof(HopperShared));
  if (error != cudaSuccess) return error;
  int num_work = num_items * params.num_kv_heads, grid = min(num_work, num_slots);
  hopper_kernel<<<grid, all_threads, sizeof(HopperShared), stream>>>(
      params, reinterpret_cast<const WorkItem*>(items), num_work, parts, keys, values);
  error = cudaGetLastError();
  if (error != cudaSuccess || num_cut_tiles == 0) return error;
  return launch_combine(params, reinterpret_cast<const CutTile*>(cut_tiles), num_cut_tiles,
                        parts, stream);
}
