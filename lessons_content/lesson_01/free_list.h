// The FreeList under the learner's BlockManager in the checks.
#include <stdexcept>
#include <vector>

class FreeList {
 public:
  explicit FreeList(int num_blocks) {
    while (num_blocks > 0) block_ids_.push_back(--num_blocks);
  }
  int pop() {
    int top = block_ids_.back();
    block_ids_.pop_back();
    return top;
  }
  void push(int block_id) { block_ids_.push_back(block_id); }
  int size() const { return block_ids_.size(); }

 private:
  std::vector<int> block_ids_;
};
