#pragma once

#include "plan_rows.cuh"

// A block's share: the tiles begin … end - 1, counted through all rows. The first of them is
// in first_row, the last one in last_row. A row is cut if other blocks have tiles of it too.
struct Share {
  int begin, end;  // equal if the block has no work; then the numbers below are 0
  int first_row, last_row;
  int is_first_cut;  // 1 if first_row is cut, before the share or after it; else 0
  int is_last_cut;   // 1 if last_row is cut and is not first_row; else 0

  __device__ int num_parts() const { return is_first_cut + is_last_cut; }
  __device__ int num_items() const { return begin == end ? 0 : last_row - first_row + 1; }
  // The row of the n-th item. A block does its parts first, because other blocks may wait for
  // them.
  __device__ int row(int n) const {
    if (n >= num_parts()) return first_row + is_first_cut + n - num_parts();
    return n == 0 && is_first_cut ? first_row : last_row;
  }
};

// The share of a block: 0 … division.num_blocks - 1. A block without work begins and ends
// where the next block begins, because a tile's block is found by a search among the begins
// of all. plan_work of work_plan.py does this for all blocks at once, on the host.
__device__ inline Share share_of(const Rows& rows, const Division& division, int block) {
  // BEGIN SOLUTION 10.4
  Share share{division.begin(rows, block), division.begin(rows, block + 1), 0, 0, 0, 0};
  if (share.begin == share.end) return share;
  share.first_row = rows.with(share.begin);
  share.last_row = rows.with(share.end - 1);
  bool is_one = share.first_row == share.last_row;
  bool is_cut_at_end = share.end < rows.begin(share.last_row + 1);
  share.is_first_cut = rows.begin(share.first_row) < share.begin || (is_one && is_cut_at_end);
  share.is_last_cut = !is_one && is_cut_at_end;
  return share;
  // END SOLUTION
}
