#pragma once

#include "wide_row.cuh"

// Reads the lane's part of a row, in loads of 16 bytes.
//   row: its first number, at an address that is a multiple of 16
__device__ inline WideRow load_row(const KvNumber* row) {
  // BEGIN SOLUTION 7.2
  WideRow part;
  const uint4* loads = reinterpret_cast<const uint4*>(row);
  for (int i = 0; i < lane_loads; ++i)
    part.loads[i] = loads[i * group_lanes + threadIdx.x % group_lanes];
  return part;
  // END SOLUTION
}

// Returns scale * (q · key) to every lane of the group. All 32 lanes of the warp call it at
// the same time, each group with its own key.
//   query: the lane's part of q, number for number as in `key`
__device__ inline float wide_score(const float (&query)[lane_numbers], const WideRow& key,
                                   float scale) {
  // BEGIN SOLUTION 7.2
  float product = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) product += query[i] * number(key, i);
  for (int distance = group_lanes / 2; distance > 0; distance /= 2) {
    product += __shfl_xor_sync(0xffffffff, product, distance);
  }
  return scale * product;
  // END SOLUTION
}
