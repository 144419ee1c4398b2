#pragma once

#include "balanced.cuh"

// A batch's rows, end to end, and where the blocks' shares begin in them. A row is a sequence
// and heads_at_once of its KV heads. It has tiles. Sequences without tokens have no rows here.

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
