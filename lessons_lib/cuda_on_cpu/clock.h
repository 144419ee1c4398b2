// Time, as far as a kernel may rely on it. Two accesses by different threads are ordered only if one of these lies between:
// - a barrier of the block. `epoch.now` counts them, over all blocks and launches;
// - a __syncwarp of both, in one warp. Each thread counts its own in `clock`, and notes in `seen[lane]` up to which of its
//   times another lane's accesses lie before its own: a vector clock (Fidge 1988; Mattern 1988);
// - the end of a launch;
// - for blocks: the writer's __threadfence, then its atomic operation, then an atomic operation by the reader's block.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "block.h"

#if CHECKED
namespace cuda_on_cpu {

// What a block has handed over: all before the epoch of its last atomic operation, and of that epoch what warps did that
// made such an operation in it. (What the others did, no barrier orders before it.)
struct Published {
    uint32_t time = 0, warps = 0;
};

struct Epochs {
    uint32_t now = 1, block_began = 1, launch_began = 1;
    std::vector<uint32_t> began;       // of each block of the launch
    std::vector<Published> published;
    bool fenced = false, acquired = false;   // by the block that runs

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
    // Blocks run one after the other, so an epoch tells the block.
    size_t block_of(uint32_t time) const { return std::upper_bound(began.begin(), began.end(), time) - began.begin() - 1; }
    bool handed_over(uint32_t time, uint32_t warps) const {
        const Published& last = published[block_of(time)];
        return acquired && (last.time > time || (last.time == time && last.warps & warps));
    }
};
inline Epochs epoch;

inline void synchronise_lanes(std::vector<Thread>& threads, unsigned warp, unsigned lanes) {
    uint32_t seen[32] = {}, latest = 0;
    auto each = [&](auto&& what) {
        for (unsigned lane = 0; lane < 32; ++lane)
            if (lanes >> lane & 1) what(lane, threads[warp * 32 + lane]);
    };
    each([&](unsigned lane, Thread& thread) {
        for (unsigned other = 0; other < 32; ++other) seen[other] = std::max(seen[other], thread.seen[other]);
        latest = std::max(latest, thread.clock);
    });
    // A record keeps one time for several lanes, the latest. So lanes that met go on from one time, the latest of theirs.
    each([&](unsigned lane, Thread&) { seen[lane] = latest; });
    each([&](unsigned, Thread& thread) {
        std::copy(seen, seen + 32, thread.seen);
        thread.clock = latest + 1;
    });
}

}  // namespace cuda_on_cpu
#endif
