#pragma once

#include "balanced.cuh"

// A batch's rows, end to end, and how they are divided among blocks: what plan_work of
// paged_attention/work_plan.py does, for any block by itself. A row is a sequence and
// heads_at_once of its KV heads. It has tiles. Sequences without tokens have no rows here.

// The last i with number(i) <= value. The numbers ascend, and number(0) <= value.
template <typename Numbers>
__device__ int last_not_above(int value, int count, Numbers number) {
  int low = 0;
  for (int high = count; high - low > 1;) {
    int middle = (low + high) / 2;
    (number(middle) <= value ? low : high) = middle;
  }
  return low;
}

struct Rows {
  const int* begins;     // (num_seqs + 1,): tiles of one head before each sequence, and of all
  int num_seqs, groups;  // groups: rows of a sequence

  __device__ int count() const { return num_seqs * groups; }
  __device__ int total() const { return groups * begins[num_seqs]; }
  // The first tile of a row. `row` may be count().
  __device__ int begin(int row) const {
    int seq = row / groups, group = row % groups, first = groups * begins[seq];
    return group == 0 ? first : first + group * (begins[seq + 1] - begins[seq]);
  }
  // The row that has this tile.
  __device__ int with(int tile) const {
    int seq = last_not_above(tile / groups, num_seqs, [&](int i) { return begins[i]; });
    return seq * groups + (tile - groups * begins[seq]) / (begins[seq + 1] - begins[seq]);
  }
};

struct Division {
  int num_blocks;  // 0: the rows cannot be divided in this way
  int rows_each;   // rows of a block; 0: rows are cut anywhere, into equal shares
  int pieces;      // blocks of a row

  // The first tile of a block. `block` may be num_blocks.
  __device__ int begin(const Rows& rows, int block) const {
    if (rows_each == 0) return int64_t(rows.total()) * block / num_blocks;
    int row = block / pieces * rows_each, piece = block % pieces, first = rows.begin(row);
    if (piece == 0) return first;
    // If a row has fewer tiles than pieces, the last of its blocks have nothing.
    int tiles = rows.begin(row + 1) - first;
    return piece < tiles ? first + int64_t(tiles) * piece / min(pieces, tiles) : first + tiles;
  }
};

// The tiles of a block. They are of the rows first_row … last_row, and the first and the last
// may have tiles of other blocks too: then they are cut.
struct Share {
  int begin, end;  // the same if there is no work for the block
  int first_row, last_row;
  int is_first_cut, is_last_cut;  // the latter only if the two are not one row

  __device__ int num_parts() const { return is_first_cut + is_last_cut; }
  __device__ int num_items() const { return begin == end ? 0 : last_row - first_row + 1; }
  // The row of the n-th item. A block does its parts first, because other blocks may wait for
  // them.
  __device__ int row(int n) const {
    if (n >= num_parts()) return first_row + is_first_cut + n - num_parts();
    return n == 0 && is_first_cut ? first_row : last_row;
  }
};

__device__ inline Share share_of(const Rows& rows, const Division& division, int block) {
  Share share{division.begin(rows, block), division.begin(rows, block + 1), 0, 0, 0, 0};
  if (share.begin == share.end) return share;
  share.first_row = rows.with(share.begin);
  share.last_row = rows.with(share.end - 1);
  bool is_one = share.first_row == share.last_row;
  bool is_cut_at_end = share.end < rows.begin(share.last_row + 1);
  share.is_first_cut = rows.begin(share.first_row) < share.begin || (is_one && is_cut_at_end);
  share.is_last_cut = !is_one && is_cut_at_end;
  return share;
}
