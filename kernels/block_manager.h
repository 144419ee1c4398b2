#pragma once

#include <mutex>

#include "block_errors.h"
#include "free_list.h"

class BlockManager {
 public:
  explicit BlockManager(int size) : free_list_(check_pool_size(size)), ref_counts_(size, 0) {}

  int allocate() {
    // BEGIN SOLUTION 1.3
    std::lock_guard<std::mutex> lock(mutex_);
    // END SOLUTION
    // BEGIN SOLUTION 1.2
    if (free_list_.size() == 0) throw OutOfBlocksError(ref_counts_.size());
    int block_id = free_list_.pop();
    ref_counts_[block_id] = 1;
    return block_id;
    // END SOLUTION
  }
  void increase_ref_count(int block_id) {
    // BEGIN SOLUTION 1.3
    std::lock_guard<std::mutex> lock(mutex_);
    // END SOLUTION
    // BEGIN SOLUTION 1.2
    check_index(block_id);
    if (ref_counts_[block_id] == 0) throw BlockNotAllocatedError(block_id);
    ++ref_counts_[block_id];
    // END SOLUTION
  }
  void free(int block_id) {
    // BEGIN SOLUTION 1.3
    std::lock_guard<std::mutex> lock(mutex_);
    // END SOLUTION
    // BEGIN SOLUTION 1.2
    check_index(block_id);
    if (ref_counts_[block_id] == 0) throw DoubleFreeError(block_id);
    if (--ref_counts_[block_id] == 0) free_list_.push(block_id);
    // END SOLUTION
  }
  int get_ref_count(int block_id) const {
    // BEGIN SOLUTION 1.3
    std::lock_guard<std::mutex> lock(mutex_);
    // END SOLUTION
    // BEGIN SOLUTION 1.2
    check_index(block_id);
    return ref_counts_[block_id];
    // END SOLUTION
  }
  int get_num_free_blocks() const {
    // BEGIN SOLUTION 1.3
    std::lock_guard<std::mutex> lock(mutex_);
    // END SOLUTION
    // BEGIN SOLUTION 1.2
    return free_list_.size();
    // END SOLUTION
  }

 private:
  void check_index(int block_id) const {
    // BEGIN SOLUTION 1.2
    if (block_id < 0 || block_id >= int(ref_counts_.size())) throw BlockIndexError(block_id);
    // END SOLUTION
  }
  FreeList free_list_;
  std::vector<int> ref_counts_;
  // BEGIN SOLUTION 1.3 STUB: // The mutex goes here, under the name mutex_.
  mutable std::mutex mutex_;
  // END SOLUTION
};
