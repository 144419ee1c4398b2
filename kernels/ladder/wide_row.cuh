#pragma once

#include "../paged_address.cuh"
#include "launch.cuh"

// Rows of head_size numbers, keys or values, which a group of neighbouring lanes reads 16
// bytes at a time: lane 0 of the group takes the first 16 bytes, lane 1 the next. At head size
// 128, 16 lanes read a key of 16-bit numbers, so a warp reads two keys at once.
constexpr int per_load = 16 / sizeof(KvNumber);  // numbers in 16 bytes
constexpr int group_lanes = head_size / per_load < 32 ? head_size / per_load : 32;
// 2 for large heads of floats, else 1
constexpr int lane_loads = head_size / per_load / group_lanes;
constexpr int lane_numbers = lane_loads * per_load;
constexpr int num_groups = num_threads / group_lanes;
constexpr int rows_at_once = 4;  // rows that a group asks for before it uses the first

// A lane's part of a row: the loads with the numbers lane, lane + group_lanes, …. Lanes are
// counted from the group's first one.
struct WideRow {
  uint4 loads[lane_loads];
};

// The i-th number of a lane's part as a float, and its place in the row.
//   i: 0 … lane_numbers - 1
__device__ inline float number(const WideRow& part, int i) {
  return to_float(reinterpret_cast<const KvNumber*>(part.loads)[i]);
}
__device__ inline int place(int i) {
  return (i / per_load * group_lanes + threadIdx.x % group_lanes) * per_load + i % per_load;
}
