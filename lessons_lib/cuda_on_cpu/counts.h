// Checked mode: counts a kernel's work, for machines without a GPU's profiler.
#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

// In the layout that lessons_lib/cuda/counts.py expects. It is visible to the linker, because
// a function with hidden types is hidden too.
struct __attribute__((visibility("default"))) CudaOnCpuCounts {
  long long bytes_read, load_instructions, sectors;  // of the named tensors
  long long barriers, warp_meetings, steps;          // of all threads
};

#if CHECKED
namespace cuda_on_cpu {

inline CudaOnCpuCounts counts{};

// The loads of a block. On a GPU the lanes of a warp load together; here they run one after
// the other. So the n-th execution of an instruction by each lane counts as one load.
class Loads {
 public:
  void begin_block(size_t threads) {
    times_.assign(threads, {});
    sectors_.assign((threads + 31) / 32, {});
  }
  void add(unsigned thread, uintptr_t address, size_t size, const void* code) {
    counts.bytes_read += size;
    std::vector<std::vector<uintptr_t>>& loads = sectors_[thread / 32][code];
    for (uintptr_t end = address + size; address < end; address += most_bytes) {
      unsigned number = times_[thread][code]++;
      if (number == loads.size()) loads.emplace_back(), ++counts.load_instructions;
      uintptr_t last = std::min(address + most_bytes, end) - 1;
      for (uintptr_t sector = address / 32; sector <= last / 32; ++sector)
        add_sector(loads[number], sector);
    }
  }

 private:
  static constexpr size_t most_bytes = 16;  // the most that a lane gets from one load

  static void add_sector(std::vector<uintptr_t>& sectors, uintptr_t sector) {
    if (std::find(sectors.rbegin(), sectors.rend(), sector) != sectors.rend()) return;
    sectors.push_back(sector);
    ++counts.sectors;
  }

  using Code = const void*;  // a place in the library's code
  // for each thread
  std::vector<std::unordered_map<Code, unsigned>> times_;
  // for each warp and each load
  std::vector<std::unordered_map<Code, std::vector<std::vector<uintptr_t>>>> sectors_;
};
inline Loads loads;

}  // namespace cuda_on_cpu
#endif
