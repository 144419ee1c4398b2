#pragma once

#include <stdexcept>
#include <vector>

// The ids of the free blocks, as a stack: the last one pushed is the first one popped.
class FreeList {
 public:
  // Starts with the ids 0 … num_blocks - 1. The first pop() gives 0, the next one 1.
  explicit FreeList(int num_blocks) {
    // BEGIN SOLUTION 1.1
    for (int block_id = num_blocks - 1; block_id >= 0; --block_id)
      block_ids_.push_back(block_id);
    // END SOLUTION
  }
  // Takes the id on top. Called only when size() > 0.
  int pop() {
    // BEGIN SOLUTION 1.1
    int block_id = block_ids_.back();
    block_ids_.pop_back();
    return block_id;
    // END SOLUTION
  }
  void push(int block_id) {
    // BEGIN SOLUTION 1.1
    block_ids_.push_back(block_id);
    // END SOLUTION
  }
  int size() const {
    // BEGIN SOLUTION 1.1
    return block_ids_.size();
    // END SOLUTION
  }

 private:
  std::vector<int> block_ids_;
};
