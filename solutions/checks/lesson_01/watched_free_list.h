// The FreeList under the learner's BlockManager in the checks. It can stop in the middle of a change, and say so: then the
// check looks whether the manager holds its mutex meanwhile.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

static std::atomic<int> nap_microseconds{1};
static std::atomic<int> napping{0};

class FreeList {
 public:
  explicit FreeList(int num_blocks) {
    while (num_blocks > 0) block_ids_.push_back(--num_blocks);
  }
  int pop() {
    int top = block_ids_.back();
    nap();
    block_ids_.pop_back();
    return top;
  }
  void push(int block_id) {
    nap();
    block_ids_.push_back(block_id);
  }
  int size() const { return block_ids_.size(); }

 private:
  static void nap() {
    ++napping;
    for (int slept = 0; slept < nap_microseconds; slept += 1000)  // a nap is cut short by setting a shorter one
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(1000, nap_microseconds.load())));
    --napping;
  }
  std::vector<int> block_ids_;
};
