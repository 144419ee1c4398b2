#pragma once

#include <cstdint>

// A batch's rows, end to end, and where the blocks' shares begin in them. A row has the tiles
// of a sequence, for one group of its KV heads. So a sequence has `groups` rows, one after the
// other and equally long. Tiles are counted through all rows, from the first tile of row 0.
// Each row has a tile: sequences without tokens have no rows here.

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
  const int* begins;     // (num_seqs + 1,): a group's tiles before each sequence, and in all
  int num_seqs, groups;  // groups: rows of a sequence

  __device__ int count() const { return num_seqs * groups; }
  __device__ int total() const { return groups * begins[num_seqs]; }
  // The first tile of a row. `row` may be count().
  __device__ int begin(int row) const {
    int seq = row / groups, group = row % groups, first = groups * begins[seq];
    return group == 0 ? first : first + group * (begins[seq + 1] - begins[seq]);
  }
  // The row that has this tile. `tile` is less than total().
  __device__ int with(int tile) const {
    int seq = last_not_above(tile / groups, num_seqs, [&](int i) { return begins[i]; });
    return seq * groups + (tile - groups * begins[seq]) / (begins[seq + 1] - begins[seq]);
  }
};

struct Division {
  int num_blocks;  // 0: the rows cannot be divided in this way
  int rows_each;   // rows of a block; 0: rows are cut anywhere, into equal shares
  int pieces;      // blocks of a row; 1 if a block has several rows

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
