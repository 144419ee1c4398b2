// Rung 4: only what the causal edge needs. The plan leaves out tiles of keys that no row of a
// tile sees, begins with the longest work, and cuts what is longer than the rest takes. Masks
// are computed in the last tiles only. And where a tile has few rows, as for a decode, the
// warps share them and divide the keys.
#include <cuda_runtime.h>

#include "combine.cuh"
#include "merge_keys.cuh"

// An item in which row_tiles and key_warps say how the warps divide the work.
template <int row_tiles, int key_warps, typename Rows>
__device__ void compute(Shared& shared, const Rows& rows, const WorkItem& item, Parts parts) {
  RowState<row_tiles> state;
  WarpPart<row_tiles, key_warps> part;
  attend<row_tiles, key_warps, true>(state, shared, rows, item.begin, item.end);
  merge_keys<key_warps>(state, shared, rows.params.scale * log2_e);
  if (part.first_key != 0 || part.first_row >= rows.count()) return;  // another warp has them
  if (item.part < 0) write_out(state, shared.queries, rows, part.first_row);
  else write_part(state, parts, rows, item.part, part.first_row);
}

// Grid: the KV heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads, blocks_at_once)
    causal_edge_kernel(PrefillParams params, const WorkItem* items, Parts parts) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  WorkItem item = items[blockIdx.x / params.num_kv_heads];
  int kv_head = blockIdx.x % params.num_kv_heads;
  TileRows<queries_per_kv_head> rows(params, item, kv_head * queries_per_kv_head);
  constexpr int key_warps = tile_keys / 16;
  if (rows.count() <= num_warps / key_warps * 16)
    compute<1, key_warps>(shared, rows, item, parts);
  else compute<most_row_tiles, 1>(shared, rows, item, parts);
}

// cut_tiles, part_o and part_ml are as in combine.cuh.
extern "C" int paged_prefill(PrefillParams params, const int* items, const int* cut_tiles,
                             float* part_o, float* part_ml, int num_items, int num_cut_tiles,
                             int planned_rows, int planned_keys, cudaStream_t stream) {
  Parts parts{part_o, reinterpret_cast<float2*>(part_ml)};
  int error =
      launch(causal_edge_kernel, num_items * params.num_kv_heads, planned_rows, planned_keys,
             stream, params, reinterpret_cast<const WorkItem*>(items), parts);
  if (error != cudaSuccess || num_cut_tiles == 0) return error;
  return launch_combine(params, reinterpret_cast<const CutTile*>(cut_tiles), num_cut_tiles,
                        parts, stream);
}
