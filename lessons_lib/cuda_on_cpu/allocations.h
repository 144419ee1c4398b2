// Memory that the launcher allocates. Fast mode takes it from the C++ library. In checked mode
// each piece lies alone (address_space.h), and freed pieces are remembered for a long time.
#pragma once
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "address_space.h"
#include "memory.h"
#include "report.h"
#include "tensors.h"

namespace cuda_on_cpu {

class Allocations {
 public:
#if CHECKED
  void* add(size_t bytes, const Asked& asked) {
    if (free_.empty() && next_ == slots) return nullptr;
    bool reuse = next_ == slots;
    size_t slot = reuse ? free_.front() : next_;
    char* base = space_.open(slot, bytes, nullptr);
    if (!base) return nullptr;
    reuse ? free_.pop_front() : void(++next_);
    memset(base, 0xff, bytes);
    regions_[slot] =
        std::make_unique<Region>("", base, bytes, asked.element ? asked.element : 4,
                                 asked.common ? Kind::common : Kind::allocated);
    Region& region = *regions_[slot];
    region.number = int(slot), region.since = ++epoch.now, region.padding = asked.padding;
    region.typed = asked.element != 0, region.made = {asked.file, asked.line};
    used += bytes;
    return base;
  }
  // The memory stays readable, because a launcher's own read of it cannot be reported here.
  void remove(Region& region, const char* file, int line) {
    region.freed = {file, line};
    free_.push_back(region.number);
    used -= region.bytes;
    space_.close(region.number, region.bytes);
    space_.open(region.number, region.bytes, nullptr);
  }
  Region* region_at(const char* address) {
    size_t slot = space_.slot_of(address);
    return slot < slots ? regions_[slot].get() : nullptr;
  }
#else
  void* add(size_t bytes, const Asked&) {
    std::lock_guard<std::mutex> lock(mutex_);
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
    memset(memory, 0xff, bytes);
    sizes_[memory] = bytes, used += bytes;
    return memory;
  }
  bool remove(void* memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = sizes_.find(memory);
    if (found == sizes_.end()) return false;
    used -= found->second;
    sizes_.erase(found);
    free(memory);
    return true;
  }
#endif
  size_t used = 0;

 private:
#if CHECKED
  static constexpr size_t slots = 256;
  AddressSpace space_{slots};
  std::unique_ptr<Region> regions_[slots];
  size_t next_ = 0;          // the first slot that was never used
  std::deque<size_t> free_;  // slots that were freed, the longest ago first
#else
  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
#endif
};
inline Allocations allocations;

#if CHECKED
inline Region* global_region_at(const char* address) {
  Region* region = tensors.region_at(address);
  return region ? region : allocations.region_at(address);
}

// Where cudaMalloc and cudaFree were called. Python finds the variable's name there.
inline void add_origin(Report& report, const Region& region) {
  if (region.made.file) report.place("made_", region.made.file, region.made.line);
  if (region.freed.file) report.place("freed_", region.freed.file, region.freed.line);
}
#endif

}  // namespace cuda_on_cpu
