// What launchers ask for: each launch, for those who want to look at it; one that is made to fail; how much shared memory
// cudaFuncSetAttribute allowed each kernel.
#pragma once
#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "launch.h"

// A launch as Python reads it (lessons_lib/cuda_launches.py). Visible, since a function with hidden types is hidden too.
struct __attribute__((visibility("default"))) RecordedLaunch {
    char kernel[128];
    const void *function, *stream;
    unsigned grid[3], block[3];
    size_t shared_bytes;
};

namespace cuda_on_cpu {

class Launches {
public:
    // Of the function that is called next. `failing`: the number of the launch, from 1, that fails; 0 for none.
    void begin_call(int failing) { list.clear(), failing_ = failing; }

    void add(const Launch& launch) {
        const dim3 grid = launch.grid, block = launch.block;
        list.push_back({"", launch.function, launch.stream, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                        launch.shared_bytes});
        snprintf(list.back().kernel, sizeof list.back().kernel, "%s", launch.kernel);
    }
    // Whether the launch that was added last is the one.
    bool fails(cudaError_t& code) const {
        if (failing_ <= 0 || list.size() != size_t(failing_)) return false;
        code = cudaErrorInvalidConfiguration;
        return true;
    }

    // The last word counts, also where it allows less than the one before, or than a kernel has without it.
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
