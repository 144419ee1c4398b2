// Checked mode: a kernel works on copies of the tensors. Each copy lies alone in many
// gigabytes of address space, so an address shows which tensor was meant, however far it
// misses. And if a launch fails, nothing of the caller's has changed.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "clock.h"
#include "region.h"

// One access to a traced tensor, in Python's layout. Visible, because a function with hidden
// types is hidden too.
struct __attribute__((visibility("default"))) TracedAccess {
  unsigned block[3], thread[3];
  int tensor, kind;  // kind: 0 read, 1 write, 2 atomic
  size_t byte, size, pc;
};

#if CHECKED
#if !defined(CUDA_ON_CPU_SLOT_BITS)
#define CUDA_ON_CPU_SLOT_BITS 36
#endif

namespace cuda_on_cpu {

class Tensors {
 public:
  static constexpr size_t slots = 64;

  // Returns the copy's address. Modulo 256 bytes it equals the original's, because vector
  // accesses depend on that.
  void* add(const char* name, void* data, size_t bytes, size_t element, Kind kind,
            bool integers) {
    if (!space_ && !reserve()) return nullptr;
    if (regions_.empty()) epoch_of_call = ++epoch.now;
    if (regions_.size() == slots) return nullptr;
    char* middle = space_ + regions_.size() * slot_bytes() + slot_bytes() / 2;
    char* base = middle + reinterpret_cast<uintptr_t>(data) % 256;
    if (bytes + 256 > slot_bytes() / 2 ||
        mprotect(middle, bytes + 256, PROT_READ | PROT_WRITE) != 0)
      return nullptr;
    memcpy(base, data, bytes);
    auto region = std::make_unique<Region>(name, base, bytes, element, kind);
    region->integers = integers, region->source = data, region->number = regions_.size();
    region->traced = is_among(traced_, region->name),
    region->counted = is_among(counted_, region->name);
    at_[regions_.size()] = region.get();
    regions_.push_back(std::move(region));
    return base;
  }

  Region* region_at(const char* address) {
    size_t slot = size_t(address - space_) >> slot_bits_;
    return slot < slots ? at_[slot] : nullptr;
  }

  // After the launcher has returned, each element of an output must have a value.
  void look_for_unwritten() {
    for (auto& region : regions_) {
      if (region->kind != Kind::output || region->bytes == 0) continue;
      auto [cell, count] = region->cells(0, region->bytes);
      auto unwritten = [&](const Cell& cell) { return !cell.has_value(epoch_of_call); };
      const Cell* first = std::find_if(cell, cell + count, unwritten);
      if (first == cell + count) continue;
      Report report("output-unwritten");
      report.add("memory", "tensor")
          .add("name", region->name)
          .add("byte", (first - cell) * region->granule());
      report.add("bytes", region->bytes).add("element", region->element);
      report.add("missing",
                 size_t(std::count_if(cell, cell + count, unwritten)) * region->granule());
      report.add("launches", launches);
      outcome.record(report.text(), cudaErrorLaunchFailure, 0);
      return;
    }
  }

  void release(bool copy_back) {
    for (auto& region : regions_) {
      if (copy_back && region->kind != Kind::input)
        memcpy(region->source, region->base, region->bytes);
      char* middle = space_ + region->number * slot_bytes() + slot_bytes() / 2;
      // Gives the pages back to the system, so that touching them is an error again.
      mmap(middle, region->bytes + 256, PROT_NONE, flags | MAP_FIXED, -1, 0);
    }
    regions_.clear();
    std::fill(at_, at_ + slots, nullptr);
    launches = 0;
  }

  void trace(const char* names) { traced_ = names, accesses.clear(); }
  void count(const char* names) { counted_ = names; }
  void record(const Region& region, size_t offset, size_t size, Access access,
              const void* code) {
    accesses.push_back({{blockIdx.x, blockIdx.y, blockIdx.z},
                        {threadIdx.x, threadIdx.y, threadIdx.z},
                        region.number,
                        int(access),
                        offset,
                        size,
                        reinterpret_cast<size_t>(code)});
  }

  std::vector<TracedAccess> accesses;
  uint32_t epoch_of_call = 0;
  int launches = 0;

 private:
#if defined(MAP_NORESERVE)
  static constexpr int flags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;
#else
  static constexpr int flags = MAP_PRIVATE | MAP_ANON;
#endif

  // As much space around each tensor as the system gives, 32 GiB on both sides if possible.
  // If a negative index is computed without a sign, it is 16 GiB too large for a float. (An
  // emulator keeps a table of pages and needs less.)
  bool reserve() {
    for (slot_bits_ = CUDA_ON_CPU_SLOT_BITS; slot_bits_ >= 26; slot_bits_ -= 2) {
      try {
        space_ = map_memory(slots * slot_bytes(), PROT_NONE);
        return true;
      } catch (const std::bad_alloc&) {}
    }
    return false;
  }

  static bool is_among(const std::string& names, const std::string& name) {
    return !names.empty() && ("," + names + ",").find("," + name + ",") != std::string::npos;
  }

  size_t slot_bytes() const { return size_t(1) << slot_bits_; }

  char* space_ = nullptr;
  unsigned slot_bits_ = CUDA_ON_CPU_SLOT_BITS;
  Region* at_[slots] = {};
  std::string traced_, counted_;  // names, separated by commas
  std::vector<std::unique_ptr<Region>> regions_;
};
inline Tensors tensors;

}  // namespace cuda_on_cpu
#endif
