// Records each launch that a launcher asks for, makes a launch fail on purpose, and keeps the
// shared memory that cudaFuncSetAttribute allowed each kernel.
#pragma once
#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "launch.h"

// A launch in the layout that lessons_lib/cuda/launches.py expects. It is visible to the
// linker, because a function with hidden types is hidden too.
struct __attribute__((visibility("default"))) RecordedLaunch {
  char kernel[128];
  const void *function, *stream;
  unsigned grid[3], block[3];
  size_t shared_bytes;
};

namespace cuda_on_cpu {

class Launches {
 public:
  // For the next call. `failing`: the number, from 1, of the launch that fails; 0 for none.
  void begin_call(int failing) { list.clear(), failing_ = failing; }

  void add(const Launch& launch) {
    const dim3 grid = launch.grid, block = launch.block;
    list.push_back({"",
                    launch.function,
                    launch.stream,
                    {grid.x, grid.y, grid.z},
                    {block.x, block.y, block.z},
                    launch.shared_bytes});
    snprintf(list.back().kernel, sizeof list.back().kernel, "%s", launch.kernel);
  }
  // Whether the newest launch has to fail.
  bool fails(cudaError_t& code) const {
    if (failing_ <= 0 || list.size() != size_t(failing_)) return false;
    code = cudaErrorInvalidConfiguration;
    return true;
  }

  // The newest value counts, even if it allows less than the one before, or than the default.
  void allow(const void* kernel, int bytes) { allowed_[kernel] = bytes; }
  void forget(const void* kernel) { allowed_.erase(kernel); }
  int allowed(const void* kernel) const {
    auto found = allowed_.find(kernel);
    return found == allowed_.end() ? not_set : found->second;
  }

  std::vector<RecordedLaunch> list;

 private:
  int failing_ = 0;
  std::unordered_map<const void*, int> allowed_;
};
inline Launches launches;

}  // namespace cuda_on_cpu
