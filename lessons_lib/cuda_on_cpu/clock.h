// Time, as far as a kernel may rely on it. Two accesses by different threads are ordered only
// if one of these lies between them:
// - A barrier of the block. `epoch.now` counts barriers, over all blocks and launches.
// - A __syncwarp of both threads, in one warp. Each thread counts its own in `clock`.
//   `seen[lane]` is the last time of another lane that is before this thread's own time. This
//   is a vector clock (Fidge 1988; Mattern 1988).
// - The end of a launch.
// - Between blocks: the writer's __threadfence, then an atomic operation of the writer, then
//   an atomic operation of the reader's block.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "block.h"

#if CHECKED
namespace cuda_on_cpu {

// The accesses that a block has handed over to other blocks: all before the epoch of its last
// atomic operation. Within that epoch, only those of the warps that made an atomic operation,
// because no barrier orders the other warps.
struct Published {
  uint32_t time = 0, warps = 0;
};

struct Epochs {
  uint32_t now = 1, block_began = 1, launch_began = 1;
  uint32_t synchronised = 1;    // when the host last waited for all kernels
  std::vector<uint32_t> began;  // when each block of the launch began
  std::vector<Published> published;
  bool fenced = false, acquired = false;  // by the running block

  void begin_launch() { launch_began = block_began = ++now, began.clear(), published.clear(); }
  void begin_block() {
    block_began = ++now;
    began.push_back(now), published.push_back({});
    fenced = acquired = false;
  }
  void atomic() {
    if (fenced && published.back().time != now) published.back() = {now, 0};
    if (fenced) published.back().warps |= 1u << self->warp;
    acquired = true;
  }
  // Blocks run one after the other, so each epoch belongs to one block.
  size_t block_of(uint32_t time) const {
    return std::upper_bound(began.begin(), began.end(), time) - began.begin() - 1;
  }
  bool handed_over(uint32_t time, uint32_t warps) const {
    const Published& last = published[block_of(time)];
    return acquired && (last.time > time || (last.time == time && last.warps & warps));
  }
};
inline Epochs epoch;
inline void epoch_synchronise() { epoch.synchronised = epoch.now; }

inline void synchronise_lanes(std::vector<Thread>& threads, unsigned warp, unsigned lanes) {
  uint32_t seen[32] = {};
  auto each = [&](auto&& what) {
    for (unsigned lane = 0; lane < 32; ++lane)
      if (lanes >> lane & 1) what(lane, threads[warp * 32 + lane]);
  };
  each([&](unsigned lane, Thread& thread) {
    thread.seen[lane] = thread.clock++;
    for (unsigned other = 0; other < 32; ++other)
      seen[other] = std::max(seen[other], thread.seen[other]);
  });
  each([&](unsigned, Thread& thread) { std::copy(seen, seen + 32, thread.seen); });
}

}  // namespace cuda_on_cpu
#else
namespace cuda_on_cpu {
inline void epoch_synchronise() {}
}  // namespace cuda_on_cpu
#endif
