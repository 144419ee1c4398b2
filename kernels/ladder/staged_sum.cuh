#pragma once

#include "staged_tile.cuh"

// Computes the sum of column `lane` over all tiles. One warp calls it. While the warp adds up
// a tile, the next tiles are on their way. Other warps of the block may have fewer tiles, or
// more.
//   stages: num_stages stages in shared memory, for this warp alone
//   tiles: num_tiles tiles, one after another
__device__ inline float staged_sum(Stage* stages, const float* tiles, int num_tiles) {
  AsyncCopies copies;
  float sum = 0.0f;
  // BEGIN SOLUTION 7.4
  for (int tile = 0; tile < num_stages; ++tile) {
    if (tile < num_tiles) start_copies(copies, stages[tile], tiles + tile * tile_floats);
    copies.close_group();
  }
  for (int tile = 0; tile < num_tiles; ++tile) {
    Stage& stage = stages[tile % num_stages];
    copies.wait<num_stages - 1>();
    __syncwarp();  // the other lanes' copies are there as well
    sum += add_up(stage);
    __syncwarp();  // the other lanes have read as well
    int next = tile + num_stages;
    if (next < num_tiles) start_copies(copies, stage, tiles + next * tile_floats);
    copies.close_group();  // an empty one, too: wait() counts groups
  }
  // END SOLUTION
  return sum;
}
