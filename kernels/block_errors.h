#pragma once

#include <stdexcept>
#include <string>

struct PoolSizeError : std::invalid_argument {
  explicit PoolSizeError(int num_blocks)
      : std::invalid_argument("num_blocks must be positive, not " +
                              std::to_string(num_blocks)) {}
};
struct OutOfBlocksError : std::runtime_error {
  explicit OutOfBlocksError(int num_blocks)
      : std::runtime_error("no block is free: " + std::to_string(num_blocks) + " of " +
                           std::to_string(num_blocks) + " are in use") {}
};
struct BlockIndexError : std::out_of_range {
  explicit BlockIndexError(int block_id)
      : std::out_of_range("there is no block " + std::to_string(block_id)) {}
};
struct DoubleFreeError : std::logic_error {
  explicit DoubleFreeError(int block_id)
      : std::logic_error("block " + std::to_string(block_id) + " is already free") {}
};
struct BlockNotAllocatedError : std::logic_error {
  explicit BlockNotAllocatedError(int block_id)
      : std::logic_error("block " + std::to_string(block_id) +
                         " is free, so it cannot be shared") {}
};

inline int check_pool_size(int num_blocks) {
  if (num_blocks <= 0) throw PoolSizeError(num_blocks);
  return num_blocks;
}
