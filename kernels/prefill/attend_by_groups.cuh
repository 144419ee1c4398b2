#pragma once

#include "attend.cuh"
#include "box_copier.cuh"
#include "group_products.cuh"

// Copies a group's queries. Rows that do not exist become zeros.
template <typename Rows>
__device__ void copy_group_queries(uint4* to, const Rows& rows, int group) {
  AsyncCopies copies;
  int num_rows = rows.count(), chunk = threadIdx.x % row_chunks;
#pragma unroll
  for (int row = threadIdx.x % group_threads / row_chunks; row < group_rows;
       row += group_threads / row_chunks) {
    int in_tile = group * group_rows + row;
    bool there = in_tile < num_rows;
    copies.copy(to + place_in_panels<group_rows>(row, chunk),
                rows.q(there ? in_tile : 0) + chunk * 8, there);
  }
  copies.close_group();
  copies.wait<0>();
  show_to_copies_and_products();
}

// As take_scores(), for one row tile. acc may still be in a product: it is to be rescaled
// later, by `rescale`.
template <int key_tiles>
__device__ void weigh(float (&scores)[1][key_tiles][4], RowState<1>& state,
                      float (&rescale)[2], float factor) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m = state.m[0][i];
#pragma unroll
    for (int n = 0; n < key_tiles; ++n)
      m = fmaxf(m, fmaxf(scores[0][n][2 * i], scores[0][n][2 * i + 1]));
    for (int distance = 1; distance < 4; distance *= 2)
      m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, distance));
    float finite = m == -INFINITY ? 0.0f : m, sum = 0.0f;
    rescale[i] = power_of_2(factor * (state.m[0][i] - finite));
    state.m[0][i] = m;
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) {
      for (int j = 2 * i; j < 2 * i + 2; ++j) {
        scores[0][n][j] = power_of_2(fmaf(factor, scores[0][n][j], -factor * finite));
        sum += scores[0][n][j];
      }
    }
    state.l[0][i] = rescale[i] * state.l[0][i] + sum;
  }
}

__device__ inline void pack_weights(uint32_t (&weights)[stage_keys / 16][4],
                                    const float (&scores)[1][stage_keys / 8][4]) {
#pragma unroll
  for (int k = 0; k < stage_keys / 16; ++k) {
    for (int i = 0; i < 4; ++i) {
      const float* pair = &scores[0][2 * k + i / 2][i % 2 * 2];
      weights[k][i] = pack<Number>(pair[0], pair[1]);
    }
  }
}

// A group's attention over an item's tiles. The queries are multiplied with the keys of a tile
// while the weights of the tile before are multiplied with its values. The softmax runs beside
// the second product.
//
// The loop waits for the next keys between the softmax and the end of that product. Without a
// wait there, the compiler moves the whole softmax past the product's end, and nothing runs
// beside it.
//   fills: of the stages, so far
template <typename Rows>
__device__ void attend_by_groups(RowState<1>& state, HopperShared& shared,
                                 const uint4* queries, const Rows& rows, const WorkItem& item,
                                 int group, int& fills) {
  Stages &key_stages = shared.key_stages, &value_stages = shared.value_stages;
  int end = fills + item.end - item.begin, n = fills;
  auto first_key = [&] { return (item.begin + n - fills) * stage_keys; };
  if (group * group_rows >= rows.count()) {  // it has no rows, and lets all pass
    for (; n <= end; ++n) {
      if (n < end) key_stages.wait_until_full(n), key_stages.release(n);
      if (n > fills) value_stages.wait_until_full(n - 1), value_stages.release(n - 1);
    }
    fills = end;
    return;
  }
  int first_row = threadIdx.x / 32 * 16, seen_by_all = rows.last_key(group * group_rows);
  float factor = rows.params.scale * log2_e, rescale[2];
  float scores[1][stage_keys / 8][4];
  uint32_t weights[stage_keys / 16][4];
  GroupProducts products;

  key_stages.wait_until_full(n);
  products.multiply_keys(scores[0], queries, shared.keys[Stages::stage(n)]);
  products.wait<0>(scores[0]);
  key_stages.release(n);
  if (first_key() + stage_keys - 1 > seen_by_all) mask(scores, rows, first_row, first_key());
  weigh(scores, state, rescale, factor);
  pack_weights(weights, scores);
  if (n + 1 < end) key_stages.wait_until_full(n + 1);
  for (++n; n < end; ++n) {
    products.multiply_keys(scores[0], queries, shared.keys[Stages::stage(n)]);
    value_stages.wait_until_full(n - 1);
    products.add_values(state.acc[0], weights, shared.values[Stages::stage(n - 1)]);
    products.wait<1>(scores[0]);
    key_stages.release(n);
    if (first_key() + stage_keys - 1 > seen_by_all) mask(scores, rows, first_row, first_key());
    weigh(scores, state, rescale, factor);
    if (n + 1 < end) key_stages.wait_until_full(n + 1);
    products.wait<0>(state.acc[0]);
    value_stages.release(n - 1);
    // After the first tiles the maximum seldom grows.
    if (__any_sync(0xffffffff, rescale[0] != 1.0f || rescale[1] != 1.0f))
#pragma unroll
      for (auto& sums : state.acc[0])
        for (int j = 0; j < 4; ++j) sums[j] *= rescale[j / 2];
    pack_weights(weights, scores);
  }
  value_stages.wait_until_full(n - 1);
  products.add_values(state.acc[0], weights, shared.values[Stages::stage(n - 1)]);
  products.wait<0>(state.acc[0]);
  value_stages.release(n - 1);
  fills = end;
}
