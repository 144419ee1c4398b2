// Checked mode: a kernel works on copies of the tensors, far apart (address_space.h). So if a
// launch fails, the caller's tensors have not changed.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "address_space.h"
#include "clock.h"
#include "region.h"

// One access to a traced tensor or shared array, in Python's layout. It is visible to the
// linker, because a function with hidden types is hidden too.
struct __attribute__((visibility("default"))) TracedAccess {
  unsigned block[3], thread[3];
  int name, kind;  // its place among the traced names; 0 read, 1 write, 2 atomic
  size_t byte, size, element, pc;
};

#if CHECKED
namespace cuda_on_cpu {

class Tensors {
 public:
  static constexpr size_t slots = 64;

  // Returns the copy's address, or null if there is no room.
  void* add(const char* name, void* data, size_t bytes, size_t element, Kind kind,
            bool integers) {
    if (regions_.size() == slots) return nullptr;
    char* base = space_.open(regions_.size(), bytes, data);
    if (!base) return nullptr;
    if (regions_.empty()) epoch_of_call = ++epoch.now;
    memcpy(base, data, bytes);
    auto region = std::make_unique<Region>(name, base, bytes, element, kind);
    region->integers = integers, region->source = data, region->number = regions_.size();
    region->since = epoch_of_call;
    region->traced = traced(region->name);
    region->counted = place_of(region->name, counted_) >= 0;
    at_[regions_.size()] = region.get();
    regions_.push_back(std::move(region));
    return base;
  }

  Region* region_at(const char* address) {
    size_t slot = space_.slot_of(address);
    return slot < slots ? at_[slot] : nullptr;
  }

  // After the launcher has returned, each element of an output must have a value.
  void look_for_unwritten() {
    for (auto& region : regions_) {
      if (region->kind != Kind::output || region->bytes == 0) continue;
      auto [cell, count] = region->cells(0, region->bytes);
      auto unwritten = [&, first = cell](const Cell& cell) {
        size_t offset = (&cell - first) * region->granule();
        return !region->has_value(cell, offset, epoch_of_call);
      };
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
      space_.close(region->number, region->bytes);
    }
    regions_.clear();
    std::fill(at_, at_ + slots, nullptr);
    launches = 0;
  }

  void trace(const char* names) { traced_ = names, accesses.clear(); }
  // The number of a name among the traced names, or -1.
  int traced(const std::string& name) const { return place_of(name, traced_); }
  void count(const char* names) { counted_ = names; }
  void record(const Region& region, size_t offset, size_t size, Access access,
              const void* code) {
    accesses.push_back({{blockIdx.x, blockIdx.y, blockIdx.z},
                        {threadIdx.x, threadIdx.y, threadIdx.z},
                        region.traced,
                        int(access),
                        offset,
                        size,
                        region.element,
                        reinterpret_cast<size_t>(code)});
  }

  std::vector<TracedAccess> accesses;
  uint32_t epoch_of_call = 0;
  int launches = 0;

 private:
  // The number of `name` in `names`, which has commas between them, or -1.
  static int place_of(const std::string& name, const std::string& names) {
    if (names.empty()) return -1;
    size_t at = ("," + names + ",").find("," + name + ",");
    return at == std::string::npos ? -1 : std::count(names.begin(), names.begin() + at, ',');
  }

  AddressSpace space_{slots};
  Region* at_[slots] = {};
  std::string traced_, counted_;  // names
  std::vector<std::unique_ptr<Region>> regions_;
};
inline Tensors tensors;

}  // namespace cuda_on_cpu
#endif
