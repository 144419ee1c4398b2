// Checked mode: pieces of memory that lie far apart, each alone in many gigabytes of address
// space. So an address shows which piece was meant, however far it misses.
#pragma once
#include <cstdint>
#include <new>

#include "fiber.h"

#if !defined(CUDA_ON_CPU_SLOT_BITS)
#define CUDA_ON_CPU_SLOT_BITS 36
#endif

namespace cuda_on_cpu {

class AddressSpace {
 public:
  explicit AddressSpace(size_t slots) : slots(slots) {}

  // Memory in a slot. Modulo 256 bytes its address equals `like`, because vector accesses
  // depend on that. Returns null if there is no room.
  char* open(size_t slot, size_t bytes, const void* like) {
    if (!space_ && !reserve()) return nullptr;
    if (bytes + 256 < bytes || bytes + 256 > slot_bytes() / 2 ||
        mprotect(middle(slot), bytes + 256, PROT_READ | PROT_WRITE) != 0)
      return nullptr;
    return middle(slot) + reinterpret_cast<uintptr_t>(like) % 256;
  }
  // Gives the pages back to the system. To touch them is an error again.
  void close(size_t slot, size_t bytes) {
    mmap(middle(slot), bytes + 256, PROT_NONE, unreserved | MAP_FIXED, -1, 0);
  }
  // The slot that an address belongs to; `slots` or more if there is none.
  size_t slot_of(const char* address) const { return size_t(address - space_) >> bits_; }

  const size_t slots;

 private:
  // As much space around each piece as the system gives, 32 GiB on both sides if possible. If
  // a negative index is computed without a sign, it is 16 GiB too large for a float. (An
  // emulator keeps a table of pages and needs less.)
  bool reserve() {
    for (bits_ = CUDA_ON_CPU_SLOT_BITS; bits_ >= 26; bits_ -= 2) {
      try {
        space_ = map_memory(slots * slot_bytes(), PROT_NONE);
        return true;
      } catch (const std::bad_alloc&) {}
    }
    return false;
  }
  size_t slot_bytes() const { return size_t(1) << bits_; }
  char* middle(size_t slot) const { return space_ + slot * slot_bytes() + slot_bytes() / 2; }

  char* space_ = nullptr;
  unsigned bits_ = CUDA_ON_CPU_SLOT_BITS;
};

}  // namespace cuda_on_cpu
