// Rung 3: the query heads of a KV head share a tile. They meet the same keys, so a key is
// loaded once for all of them. And a short chunk fills more of a tile: with eight heads, 16
// tokens are 128 rows.
#include <cuda_runtime.h>

#include "attend.cuh"

// Grid: the KV heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads, blocks_at_once)
    packed_heads_kernel(PrefillParams params, const WorkItem* items) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const WorkItem& item = items[blockIdx.x / params.num_kv_heads];
  constexpr int heads = queries_per_kv_head;
  int first_head = blockIdx.x % params.num_kv_heads * heads;
  RowState<most_row_tiles> state;
  attend<heads, most_row_tiles, 1, false>(state, shared, params, item, first_head);
  write_out(state, shared.queries, TileRows<heads>(params, item, first_head),
            WarpPart<most_row_tiles, 1>().first_row);
}

extern "C" int paged_prefill(PrefillParams params, const int* items, int num_items,
                             int planned_rows, int planned_keys, cudaStream_t stream) {
  return launch(packed_heads_kernel, num_items * params.num_kv_heads, planned_rows,
                planned_keys, stream, params, reinterpret_cast<const WorkItem*>(items));
}
