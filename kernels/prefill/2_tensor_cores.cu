// Rung 2: the tensor cores multiply. A block takes 128 queries of a head. Keys and values come
// by copies that go on while the last ones are multiplied. Scores and weights never leave the
// registers.
#include <cuda_runtime.h>

#include "attend.cuh"

// Grid: the heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads, blocks_at_once)
    tensor_core_kernel(PrefillParams params, const WorkItem* items) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const WorkItem& item = items[blockIdx.x / params.num_q_heads];
  int head = blockIdx.x % params.num_q_heads;
  RowState<most_row_tiles> state;
  attend<1, most_row_tiles, 1, false>(state, shared, params, item, head);
  write_out(state, shared.queries, TileRows<1>(params, item, head),
            WarpPart<most_row_tiles, 1>().first_row);
}

extern "C" int paged_prefill(PrefillParams params, const int* items, int num_items,
                             int planned_rows, int planned_keys, cudaStream_t stream) {
  return launch(tensor_core_kernel, num_items * params.num_q_heads, planned_rows, planned_keys,
                stream, params, reinterpret_cast<const WorkItem*>(items));
}
