// Shared memory: one set of variables for each block. In checked mode the variables are far
// apart, so an index beyond the end of one cannot reach another.
#pragma once
#include <algorithm>
#include <deque>

#include "fiber.h"
#include "region.h"
#include "report.h"

namespace cuda_on_cpu {

constexpr size_t shared_slot = 1 << 20;  // of address space for each variable, in checked mode
constexpr size_t shared_slots = 64;
constexpr size_t arena_bytes = CHECKED ? shared_slots * shared_slot : 256 * 1024;

// `bytes`, or the next multiple of `alignment`.
inline size_t up_to(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

class SharedMemory {
 public:
  // Forgets the variables of the last launch.
  // `allowed`: the last cudaFuncSetAttribute, or not_set.
  void begin_launch(size_t dynamic_bytes, int allowed) {
    if (!arena_) arena_ = map_memory(arena_bytes);
    variables_.clear();
    std::fill(regions_, regions_ + shared_slots, nullptr);
    used_ = static_bytes_ = 0, dynamic_alignment_ = 1;
    allowed_ = allowed;
    add(nullptr, "dynamic shared memory", dynamic_bytes, 256, 4, Kind::dynamic);
  }

  // Forgets the last block's values. All bits are set, which makes a float a NaN, so it shows.
  void begin_block() {
    for (Variable& variable : variables_) variable.made = false;
    make(variables_[0]);
  }

  // Returns null if the block needs more shared memory than there is; then `why` says so.
  void* variable(const void* identity, const char* name, size_t bytes, size_t alignment,
                 size_t element, const unsigned char* padding, const char*& why) {
    for (Variable& variable : variables_)
      if (variable.identity == identity) return make(variable);
    static_bytes_ = up_to(static_bytes_, alignment) + bytes;
    if (static_bytes_ > shared_bytes_by_default)
      return why = "more than 48 KiB of shared arrays; nvcc refuses that", nullptr;
    if ((why = too_much())) return nullptr;
    if (variables_.size() == shared_slots)
      return why = "more than 63 shared variables", nullptr;
    Variable& added =
        add(identity, name, bytes, std::max<size_t>(alignment, 16), element, Kind::shared);
    added.region.padding = padding;
    return make(added);
  }

  // Like `variable`. nvcc puts the dynamic array after the others, at a multiple of its
  // alignment and of 16.
  void* dynamic(const char* name, size_t alignment, size_t element,
                const unsigned char* padding, const char*& why) {
    dynamic_alignment_ = std::max({dynamic_alignment_, alignment, size_t(16)});
    if ((why = too_much())) return nullptr;
    Region& region = variables_[0].region;
    if (region.name != name) region.rename(name, element, padding);
    return region.base;
  }

#if CHECKED
  // The variable that this part of the address space belongs to, or null.
  Region* region_at(const char* address) {
    size_t slot = size_t(address - arena_) / shared_slot;
    return slot < shared_slots ? regions_[slot] : nullptr;
  }
#endif

 private:
  // A GPU's rules, as recorded in tests/lessons_lib/cuda_on_cpu/cuda_shared_memory.csv. The
  // sizes of the arrays are known only when a thread reaches them. So the launch, or
  // cudaFuncSetAttribute, is refused late.
  const char* too_much() const {
    size_t arrays = up_to(static_bytes_, dynamic_alignment_);
    if (allowed_ != not_set && arrays + allowed_ > shared_bytes_at_most)
      return "cudaFuncSetAttribute allowed so much dynamic shared memory that with the shared "
             "arrays it is more than 227 KiB; on a GPU that call fails";
    if (allowed_ == not_set && arrays + variables_[0].region.bytes > shared_bytes_by_default)
      return "shared arrays and dynamic shared memory are more than 48 KiB together, which "
             "cudaFuncSetAttribute must allow first";
    return nullptr;
  }

  struct Variable {
    Variable(const void* identity, const char* name, char* base, size_t bytes, size_t element,
             Kind kind)
        : identity(identity), region(name, base, bytes, element, kind) {}
    const void* identity;
    bool made = false;  // by this block
    Region region;
  };

  Variable& add(const void* identity, const char* name, size_t bytes, size_t alignment,
                size_t element, Kind kind) {
    char* base = place(bytes, alignment);
    Variable& added = variables_.emplace_back(identity, name, base, bytes, element, kind);
    regions_[variables_.size() - 1] = &added.region;
    return added;
  }

  char* place(size_t bytes, size_t alignment) {
#if CHECKED
    return arena_ + variables_.size() * shared_slot + shared_slot / 2;
#endif
    used_ = up_to(used_, alignment);
    char* base = arena_ + used_;
    used_ += bytes;
    return base;
  }
  void* make(Variable& variable) {
    if (!variable.made) memset(variable.region.base, 0xff, variable.region.bytes);
    variable.made = true;
    return variable.region.base;
  }

  char* arena_ = nullptr;
  size_t used_, static_bytes_, dynamic_alignment_;
  int allowed_;
  std::deque<Variable> variables_;  // each variable stays where it is
  Region* regions_[shared_slots] = {};
};

}  // namespace cuda_on_cpu
