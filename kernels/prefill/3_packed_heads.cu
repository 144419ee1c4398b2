// Rung 3: the query heads of a KV head share a tile. They meet the same keys, so a key is loaded
// once for all of them. And a short chunk fills more of a tile: with eight heads, 16 tokens are
// 128 rows.
#include <cuda_runtime.h>

#include "attend.cuh"

// Grid: the KV heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads, blocks_at_once)
    packed_heads_kernel(PrefillParams params, const WorkItem* items) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  WorkItem item = items[blockIdx.x / params.num_kv_heads];
  int kv_head = blockIdx.x % params.num_kv_heads;
  TileRows<queries_per_kv_head> rows(params, item, kv_head * queries_per_kv_head);
  RowState<most_row_tiles> state;
  attend<most_row_tiles, 1, false>(state, shared, rows, item.begin, item.end);
  write_out(state, shared.queries, rows, WarpPart<most_row_tiles, 1>().first_row);
}

extern "C" int paged_prefill(PrefillParams params, const int* items, int num_items,
                             int planned_rows, int planned_keys, cudaStream_t stream) {
  return launch(packed_heads_kernel, num_items * params.num_kv_heads, planned_rows,
                planned_keys, stream, params, reinterpret_cast<const WorkItem*>(items));
}
