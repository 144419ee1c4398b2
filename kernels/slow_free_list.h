#pragma once

#include <chrono>
#include <thread>
#include <vector>

// A FreeList that sleeps in the middle of each change, so that another thread can get in
// between.
class FreeList {
 public:
  explicit FreeList(int num_blocks) : ids_(num_blocks), size_(num_blocks) {
    for (int i = 0; i < num_blocks; ++i) ids_[i] = num_blocks - 1 - i;
  }
  int pop() {
    int top = ids_[size_ - 1];
    nap();
    --size_;
    return top;
  }
  void push(int block_id) {
    nap();
    ids_[size_++] = block_id;
  }
  int size() const { return size_; }

 private:
  static void nap() { std::this_thread::sleep_for(std::chrono::microseconds(1)); }
  std::vector<int> ids_;
  int size_;
};
