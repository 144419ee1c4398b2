#pragma once

#include "plan_rows.cuh"

// The tiles begin … end - 1 of a block. They are of the rows first_row … last_row. The first
// and the last of these may have tiles of other blocks too: then they are cut.
struct Share {
  int begin, end;  // the same if there is no work for the block; then the others are 0
  int first_row, last_row;
  int is_first_cut, is_last_cut;  // 1 or 0; the latter only if the two are not one row

  __device__ int num_parts() const { return is_first_cut + is_last_cut; }
  __device__ int num_items() const { return begin == end ? 0 : last_row - first_row + 1; }
  // The row of the n-th item. A block does its parts first, because other blocks may wait for
  // them.
  __device__ int row(int n) const {
    if (n >= num_parts()) return first_row + is_first_cut + n - num_parts();
    return n == 0 && is_first_cut ? first_row : last_row;
  }
};

// What plan_work of paged_attention/work_plan.py does for all blocks, for one block by itself.
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
