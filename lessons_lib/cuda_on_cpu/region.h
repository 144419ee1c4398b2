// A piece of memory that threads share: a shared variable, a tensor, or memory of cudaMalloc.
// In checked mode, each of its elements has a cell that remembers which threads touched it
// (record.h).
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "fiber.h"
#include "record.h"

namespace cuda_on_cpu {

enum class Access : uint8_t { read, write, atomic };
inline const char* word(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic";
}

struct Cell {
  Record written, read, atomic;
  bool used() const { return written.epoch || read.epoch || atomic.epoch; }
  bool has_value(uint32_t since) const {
    return written.epoch >= since || atomic.epoch >= since;
  }
  bool changed_after(uint32_t epoch) const {
    return written.epoch > epoch || atomic.epoch > epoch;
  }
};

// `allocated` is a GPU's memory; `common` is memory that the host reaches too.
enum class Kind { shared, dynamic, input, updated, output, allocated, common };

struct Place {
  const char* file = nullptr;
  int line = 0;
};

class Region {
 public:
  Region(std::string name, char* base, size_t bytes, size_t element, Kind kind = Kind::shared)
      : base(base), bytes(bytes), kind(kind), element(element), name(std::move(name)) {
    shift_ = element >= 4 ? 2 : element == 2 ? 1 : 0;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (cells_) munmap(cells_, cells_bytes());
    if (filled_) munmap(filled_, bytes);
  }

  // The first cell of `size` bytes from `offset`, and the number of cells. Neighbouring halves
  // of a float array may belong to different threads. So the first access to a part of an
  // element makes all cells finer.
  std::pair<Cell*, size_t> cells(size_t offset, size_t size) {
    bool a_part = (offset | size) & (granule() - 1);
    if (!cells_ || a_part) refine(a_part);
    size_t first = offset >> shift_, last = (offset + size - 1) >> shift_;
    return {cells_ + first, last - first + 1};
  }
  size_t granule() const { return size_t(1) << shift_; }
  bool global() const { return kind >= Kind::input; }  // not shared memory of one block
  bool begins_empty() const { return kind != Kind::updated && kind != Kind::common; }
  bool tensor() const { return global() && kind < Kind::allocated; }

  // The launcher copies these bytes or sets them. That is ordered before all later kernels.
  void fill(size_t offset, size_t size) {
    if (!filled_) filled_ = map_memory(bytes);
    memset(filled_ + offset, 1, size);
  }
  // Whether the cell at `offset` was written, since an epoch or by `fill`.
  bool has_value(const Cell& cell, size_t offset, uint32_t since) const {
    if (filled_ && !memchr(filled_ + offset, 0, std::min(granule(), bytes - offset)))
      return true;
    return cell.has_value(since);
  }
  // The first cell from `offset` that has no value, as a distance in bytes; `end` if all have.
  size_t first_unwritten(size_t offset, size_t end) {
    cells(offset, std::min(granule(), end - offset));  // makes them
    for (offset &= ~(granule() - 1); offset < end; offset += granule())
      if (!has_value(cells_[offset >> shift_], offset, since) && !is_padding(offset))
        return offset;
    return end;
  }
  // Whether the cell at `offset` is padding in a struct (launch.h). If cudaMalloc was called
  // without a type, the cell may be padding if the same 16 bytes have a written part.
  bool is_padding(size_t offset) const {
    if (!typed) {
      size_t begin = offset & ~size_t(15), end = std::min(begin + 16, bytes);
      for (size_t other = begin; other < end; other += granule())
        if (has_value(cells_[other >> shift_], other, since)) return true;
    }
    if (!padding) return false;
    for (size_t byte = offset; byte < offset + granule(); ++byte)
      if (padding[byte % element]) return false;
    return true;
  }

  void rename(const char* new_name, size_t new_element, const unsigned char* new_padding) {
    name = new_name, element = new_element, padding = new_padding;
    while (granule() > element && !cells_) --shift_;
  }

  char* base;
  size_t bytes;
  Kind kind;
  bool integers = false;  // an int32 input, which may be a block table
  bool counted = false;
  int traced = -1;         // its place among the traced names; -1: not traced
  bool typed = true;       // whether `element` is known
  uint32_t since = 0;      // a value counts only if it was written in this epoch or later
  int number = 0;          // in the order of registration
  Place made, freed;       // by cudaMalloc and cudaFree
  void* source = nullptr;  // a tensor's own memory; the kernel works on the copy at `base`
  size_t element;
  const unsigned char* padding = nullptr;
  std::string name;

 private:
  size_t cells_bytes() const { return ((bytes >> shift_) + 1) * sizeof(Cell); }
  [[gnu::noinline]] void refine(bool to_bytes) {
    Cell* coarse = std::exchange(cells_, nullptr);
    size_t coarse_bytes = cells_bytes(), parts = granule();
    if (to_bytes) shift_ = 0;
    cells_ = reinterpret_cast<Cell*>(map_memory(cells_bytes()));
    if (!coarse) return;
    for (size_t i = 0; i < bytes; ++i) {
      if (!coarse[i / parts].used()) continue;
      cells_[i] = coarse[i / parts];
      for (Record* copy : {&cells_[i].written, &cells_[i].read, &cells_[i].atomic})
        crowds.divide(*copy);
    }
    munmap(coarse, coarse_bytes);
  }

  Cell* cells_ = nullptr;
  char* filled_ = nullptr;  // one for each byte
  unsigned shift_ = 0;
};

}  // namespace cuda_on_cpu
