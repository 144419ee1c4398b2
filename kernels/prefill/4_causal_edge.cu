// Rung 4: only what the causal edge needs. The plan leaves out tiles of keys that no row of a
// tile sees, begins with the longest work, and cuts what is longer than the rest takes. Masks
// are computed in the last tiles only. And where a tile has few rows, as for a decode, the
// warps share them and divide the keys.
#include <cuda_runtime.h>

#include "combine.cuh"
#include "merge_keys.cuh"

constexpr int heads = queries_per_kv_head;
constexpr int key_warps_of_few = tile_keys / 16;
constexpr int few_rows = num_warps / key_warps_of_few * 16;

// row_tiles and key_warps say how the warps divide the item.
template <int row_tiles, int key_warps>
__device__ void compute(Shared& shared, const PrefillParams& params, const WorkItem& item,
                        int first_head, Parts parts) {
  RowState<row_tiles> state;
  attend<heads, row_tiles, key_warps, true>(state, shared, params, item, first_head);
  merge_keys<key_warps>(state, shared, params.scale * log2_e);
  WarpPart<row_tiles, key_warps> part;
  TileRows<heads> rows(params, item, first_head);
  if (part.first_key != 0 || part.first_row >= rows.count()) return;  // others have them
  if (item.part < 0) write_out(state, shared.queries, rows, part.first_row);
  else write_part(state, parts, rows, item.part, part.first_row);
}

// Grid: the KV heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads, blocks_at_once)
    causal_edge_kernel(PrefillParams params, const WorkItem* items, Parts parts) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const WorkItem& item = items[blockIdx.x / params.num_kv_heads];
  int first_head = blockIdx.x % params.num_kv_heads * heads;
  if (TileRows<heads>(params, item, first_head).count() <= few_rows)
    compute<1, key_warps_of_few>(shared, params, item, first_head, parts);
  else compute<most_row_tiles, 1>(shared, params, item, first_head, parts);
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
