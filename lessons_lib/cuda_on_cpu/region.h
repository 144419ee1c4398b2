// A piece of memory that threads share: a shared variable or a tensor. In checked mode, each
// of its elements has a cell that remembers which threads touched it (record.h).
#pragma once
#include <sys/mman.h>

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
  // halves of a float array may belong to different threads. The first access to a part of
  // an element makes all cells finer.
  std::pair<Cell*, size_t> cells(size_t offset, size_t size) {
    bool a_part = (offset | size) & (granule() - 1);
    if (!cells_ || a_part) refine(a_part);
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
  unsigned shift_ = 0;
};

}  // namespace cuda_on_cpu
