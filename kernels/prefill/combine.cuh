#pragma once

#include "attend.cuh"

// The results of items that have only some of their rows' keys.
//   o: (num_parts, num_kv_heads, tile_rows, head_size), divided by l
//   ml: (num_parts, num_kv_heads, tile_rows): m, not scaled, and l. A row that sees none of
//     the part's keys has o = 0, m = -INFINITY, l = 0.
struct Parts {
  float* o;
  float2* ml;
  __device__ int64_t row(const PrefillParams& params, int part, int kv_head, int row) const {
    return (int64_t(part) * params.num_kv_heads + kv_head) * tile_rows + row;
  }
};

// A tile of queries with more than one part.
struct CutTile {
  int seq, first_row, first_part, num_parts;
};

template <int row_tiles, typename Rows>
__device__ void write_part(const RowState<row_tiles>& state, Parts parts, const Rows& rows,
                           int part, int first_row) {
  int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4;
#pragma unroll
  for (int t = 0; t < row_tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float l = sum_of_lanes(state.l[t][i]), factor = l == 0.0f ? 0.0f : 1.0f / l;
      int in_tile = first_row + 16 * t + 8 * i + r;
      if (in_tile >= rows.count()) continue;
      int64_t row = parts.row(rows.params, part, rows.kv_head(), in_tile);
      if (s == 0) parts.ml[row] = make_float2(state.m[t][i], l);
#pragma unroll
      for (int d = 0; d < row_chunks; ++d) {
        const float* pair = &state.acc[t][d][2 * i];
        *reinterpret_cast<float2*>(parts.o + row * head_size + 8 * d + 2 * s) =
            make_float2(factor * pair[0], factor * pair[1]);
      }
    }
  }
}

// Combines the parts of each row, as combine_result() of lesson 04 does.
// Grid: (cut tiles × KV heads, tile_rows). head_size threads, one for each number of the
// result.
__global__ void combine_kernel(PrefillParams params, const CutTile* cut_tiles, Parts parts) {
  CutTile cut = cut_tiles[blockIdx.x / params.num_kv_heads];
  int kv_head = blockIdx.x % params.num_kv_heads, row = blockIdx.y;
  WorkItem item{cut.seq, cut.first_row, 0, 0, 0};
  TileRows<queries_per_kv_head> rows(params, item, kv_head * queries_per_kv_head);
  if (row >= rows.count()) return;
  float m_all = -INFINITY, l_all = 0.0f, o_all = 0.0f, factor = params.scale * log2_e;
  auto place_of = [&](int i) { return parts.row(params, cut.first_part + i, kv_head, row); };
  for (int i = 0; i < cut.num_parts; ++i) m_all = fmaxf(m_all, parts.ml[place_of(i)].x);
  for (int i = 0; i < cut.num_parts; ++i) {
    float2 ml = parts.ml[place_of(i)];
    float weight = ml.y == 0.0f ? 0.0f : power_of_2(factor * (ml.x - m_all)) * ml.y;
    l_all += weight;
    o_all += weight * parts.o[place_of(i) * head_size + threadIdx.x];
  }
  rows.out(row)[threadIdx.x] = from_float<Number>(l_all == 0.0f ? 0.0f : o_all / l_all);
}

inline int launch_combine(const PrefillParams& params, const CutTile* cut_tiles,
                          int num_cut_tiles, Parts parts, cudaStream_t stream) {
  dim3 grid(num_cut_tiles * params.num_kv_heads, tile_rows);
  combine_kernel<<<grid, head_size, 0, stream>>>(params, cut_tiles, parts);
  return cudaGetLastError();
}
