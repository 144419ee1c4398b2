#pragma once

#include "async_copy.cuh"

// The tiles of the exercise on stages: 8 rows of 32 floats. Shared memory holds 4 of them.
constexpr int num_stages = 4;
constexpr int tile_rows = 8, row_size = 32;
constexpr int tile_floats = tile_rows * row_size;

struct Stage {
  uint4 chunks[tile_floats / 4];  // a chunk is 16 bytes
};

// Begins to copy a tile into a stage, with all lanes of a warp. Neighbouring lanes take
// neighbouring chunks.
__device__ inline void start_copies(AsyncCopies& copies, Stage& stage, const float* tile) {
  for (int i = threadIdx.x % 32; i < tile_floats / 4; i += 32)
    copies.copy(&stage.chunks[i], tile + 4 * i, true);
}

// Adds up the column with the lane's number. Other lanes have copied most of it.
__device__ inline float add_up(const Stage& stage) {
  const float* column = reinterpret_cast<const float*>(stage.chunks) + threadIdx.x % 32;
  float sum = 0.0f;
  for (int row = 0; row < tile_rows; ++row) sum += column[row * row_size];
  return sum;
}
