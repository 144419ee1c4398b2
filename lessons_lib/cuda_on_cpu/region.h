// A piece of memory that threads share: a shared variable or a tensor. In checked mode, each
// of its elements has a cell that remembers which thread touched it last.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "fiber.h"

namespace cuda_on_cpu {

enum class Access : uint8_t { read, write, atomic };
inline const char* word(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic";
}

constexpr uint16_t several = 0xffff, nobody = 0xffff;

// The accesses of one kind to one element, as far as later accesses may clash with them. All
// zero means none yet. clock.h explains the times.
struct Record {
  uint32_t epoch;        // 0: never accessed
  uint32_t clock;        // the warp's time at the latest access
  uint32_t lanes;        // which lanes of `warp`
  uint32_t other_block;  // an epoch in which another block made one, at any time
  int32_t code;          // distance from the start of the library's code: of `thread`,
  int32_t previous_code, other_block_code;  // of `previous`, and in `other_block`
  uint16_t warp;                            // the warp of all threads, or `several`
  uint16_t thread, previous;  // the last one, and the last different one before it
};

struct Cell {
  Record written, read, atomic;
  bool used() const { return written.epoch || read.epoch || atomic.epoch; }
  bool has_value(uint32_t since) const {
    return written.epoch >= since || atomic.epoch >= since;
  }
};

enum class Kind { shared, dynamic, input, updated, output };

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
  }

  // The first cell of `size` bytes from `offset`, and the number of cells. Neighbouring
  // halves of a float array may belong to different threads. The first access that is
  // smaller than an element makes all cells finer.
  std::pair<Cell*, size_t> cells(size_t offset, size_t size) {
    if (!cells_ || size >> shift_ == 0) refine(size);
    size_t first = offset >> shift_, last = (offset + size - 1) >> shift_;
    return {cells_ + first, last - first + 1};
  }
  size_t granule() const { return size_t(1) << shift_; }
  bool tensor() const { return kind >= Kind::input; }
  // Whether the cell at `offset` is padding in a struct (launch.h).
  bool is_padding(size_t offset) const {
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
  bool traced = false, counted = false;
  int number = 0;          // in the order of registration
  void* source = nullptr;  // a tensor's own memory; the kernel works on the copy at `base`
  size_t element;
  const unsigned char* padding = nullptr;
  std::string name;

 private:
  size_t cells_bytes() const { return ((bytes >> shift_) + 1) * sizeof(Cell); }
  [[gnu::noinline]] void refine(size_t size) {
    Cell* coarse = std::exchange(cells_, nullptr);
    size_t coarse_bytes = cells_bytes(), parts = granule();
    if (size >> shift_ == 0) shift_ = 0;
    cells_ = reinterpret_cast<Cell*>(map_memory(cells_bytes()));
    if (!coarse) return;
    for (size_t i = 0; i < bytes; ++i)
      if (const Cell& old = coarse[i / parts]; old.used()) cells_[i] = old;
    munmap(coarse, coarse_bytes);
  }

  Cell* cells_ = nullptr;
  unsigned shift_ = 0;
};

}  // namespace cuda_on_cpu
