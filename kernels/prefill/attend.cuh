#pragma once

#include "mask.cuh"
#include "take_scores.cuh"
#include "tile_copies.cuh"
#include "tile_products.cuh"

constexpr float log2_e = 1.44269504f;

// Which part of a block's tile a warp has: some of its rows, and of each tile of keys all, or
// where several warps share the rows, some.
template <int row_tiles, int key_warps>
struct WarpPart {
  static constexpr int num_rows = 16 * row_tiles, num_keys = tile_keys / key_warps;
  int first_row, first_key;
  __device__ WarpPart()
      : first_row(int(threadIdx.x) / 32 / key_warps * num_rows),
        first_key(int(threadIdx.x) / 32 % key_warps * num_keys) {}
};

// A block's attention over an item's tiles of keys. While a tile is multiplied, the next one
// is on its way into the other stage. What is needed before and after, but not here, is loaded
// again after this: no register has to keep it.
//   heads: of a token, that are rows of the tile
//   only_needed: whether to leave out masks and products where the causal edge allows it
template <int heads, int row_tiles, int key_warps, bool only_needed>
__device__ void attend(RowState<row_tiles>& state, Shared& shared, const PrefillParams& params,
                       const WorkItem& item, int first_head) {
  using Part = WarpPart<row_tiles, key_warps>;
  Part part;
  AsyncCopies copies;
  TileRows<heads> rows(params, item, first_head);
  int begin = item.begin, end = item.end;
  KeyCopier copier(rows);
  copier.look_up(begin);
  copy_queries(copies, shared.queries, rows);
  copier.copy(copies, shared.stages[0], begin);
  copies.close_group();
  if (begin + 1 < end) copier.look_up(begin + 1);

  // A warp without rows sees no key.
  int last_row = min(part.first_row + part.num_rows, rows.count()) - 1;
  int seen_by_all = rows.last_key(part.first_row), seen_by_any = rows.last_key(last_row);
  if (!only_needed) seen_by_any = rows.sequence.num_keys - 1;
  if (last_row < part.first_row) seen_by_any = -1;
  float factor = params.scale * log2_e;
  for (int tile = begin; tile < end; ++tile) {
    copies.wait<0>();
    __syncthreads();  // this tile is there, and all warps have used the one before
    if (tile + 1 < end) copier.copy(copies, shared.stages[(tile + 1 - begin) % 2], tile + 1);
    copies.close_group();
    if (tile + 2 < end) copier.look_up(tile + 2);

    int first_key = tile * tile_keys + part.first_key;
    if (first_key > seen_by_any) continue;
    const auto& stage = shared.stages[(tile - begin) % 2];
    float scores[row_tiles][Part::num_keys / 8][4];
    multiply_keys(scores, shared.queries + part.first_row * row_chunks,
                  stage[0] + part.first_key * row_chunks);
    if (!only_needed || first_key + Part::num_keys - 1 > seen_by_all)
      mask(scores, rows, part.first_row, first_key);
    take_scores(state, scores, factor);
    add_values(state, scores, stage[1] + part.first_key * row_chunks);
  }
}

// Writes the warp's results. They pass through the place of its queries, so that neighbouring
// lanes write neighbouring chunks of a row. All lanes call it.
template <int row_tiles, typename Rows>
__device__ void write_out(const RowState<row_tiles>& state, uint4* queries, const Rows& rows,
                          int first_row) {
  int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4;
  queries += first_row * row_chunks;
  __syncwarp();  // no lane's row of queries is still being loaded
#pragma unroll
  for (int t = 0; t < row_tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float l = sum_of_lanes(state.l[t][i]), factor = l == 0.0f ? 0.0f : 1.0f / l;
#pragma unroll
      for (int d = 0; d < row_chunks; ++d) {
        uint4* chunk = queries + place(16 * t + 8 * i + r, d);
        const float* pair = &state.acc[t][d][2 * i];
        reinterpret_cast<uint32_t*>(chunk)[s] =
            pack<Number>(factor * pair[0], factor * pair[1]);
      }
    }
  }
  __syncwarp();  // whole rows are there
  for (int i = lane; i < 16 * row_tiles * row_chunks; i += 32) {
    int row = i / row_chunks, chunk = i % row_chunks;
    if (first_row + row < rows.count())
      reinterpret_cast<uint4*>(rows.out(first_row + row))[chunk] = queries[place(row, chunk)];
  }
}

// Launches a kernel with a block for each item and group of heads. items: the WorkItems, for
// tiles of planned_rows queries and planned_keys keys.
template <typename Kernel, typename... Arguments>
int launch(Kernel kernel, int num_blocks, int planned_rows, int planned_keys,
           cudaStream_t stream, Arguments... arguments) {
  if (planned_rows != tile_rows || planned_keys != tile_keys) return cudaErrorInvalidValue;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           sizeof(Shared));
  if (error != cudaSuccess) return error;
  kernel<<<num_blocks, num_threads, sizeof(Shared), stream>>>(arguments...);
  return cudaGetLastError();
}
