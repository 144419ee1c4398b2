// Checked mode: pieces of memory, each alone in many gigabytes of address space. So even an
// address far outside a piece shows which piece was meant.
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

  // Opens memory in a slot. Its address equals `like` modulo 256 bytes, because vector
  // accesses depend on that. Returns null if there is no room.
  char* open(size_t slot, size_t bytes, const void* like) {
    if (!space_ && !reserve()) return nullptr;
    if (bytes + 256 < bytes || bytes + 256 > slot_bytes() / 2 ||
        mprotect(middle(slot), bytes + 256, PROT_READ | PROT_WRITE) != 0)
      return nullptr;
    return middle(slot) + reinterpret_cast<uintptr_t>(like) % 256;
  }
  // Gives the pages back to the system. Then an access to them is an error again.
  void close(size_t slot, size_t bytes) {
    mmap(middle(slot), bytes + 256, PROT_NONE, unreserved | MAP_FIXED, -1, 0);
  }
  // The slot that an address belongs to; `slots` or more if there is none.
  size_t slot_of(const char* address) const { return size_t(address - space_) >> bits_; }

  const size_t slots;

 private:
  // Puts as much space around each piece as the system gives, if possible 32 GiB on both
  // sides. A negative index of a float that is computed without a sign is 16 GiB too large.
  // (An emulator keeps a table of pages and needs less space.)
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
