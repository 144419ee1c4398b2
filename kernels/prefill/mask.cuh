#pragma once

#include "tile_shape.cuh"

// Hides the keys that a row does not see: their scores become -INFINITY. The others stay as
// they are. A warp has 16 * row_tiles rows and 8 * key_tiles keys. With r = lane / 4 and s =
// lane % 4, a lane has in scores[t][n][2 * i + j] the score of the warp's row 16t + 8i + r and
// the warp's key 8n + 2s + j. t, n, i and j begin at 0; i and j are 0 or 1.
//   rows: rows.last_key(row) is the last key that a row sees. The row is counted in the
//     block's tile, and the key in the sequence. If it is before first_key, the row sees none
//     of the warp's keys.
//   first_row: the place of the warp's row 0 in the block's tile
//   first_key: the place of the warp's key 0 in the sequence
template <int row_tiles, int key_tiles, typename Rows>
__device__ void mask(float (&scores)[row_tiles][key_tiles][4], const Rows& rows, int first_row,
                     int first_key) {
  // BEGIN SOLUTION 9.2
  int r = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
#pragma unroll
  for (int t = 0; t < row_tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int num_seen = rows.last_key(first_row + 16 * t + r + 8 * i) + 1 - first_key - 2 * s;
#pragma unroll
      for (int n = 0; n < key_tiles; ++n) {
        for (int j = 0; j < 2; ++j)
          if (8 * n + j >= num_seen) scores[t][n][2 * i + j] = -INFINITY;
      }
    }
  }
  // END SOLUTION
}
