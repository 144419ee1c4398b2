#pragma once

#include <cstdint>

// Copies of 16 bytes from global into shared memory. They continue while the thread does other
// work. close_group() ends a group of copies. wait<n>() waits until all groups of this thread
// have arrived, except the latest n. It does not wait for other threads' copies.
struct AsyncCopies {
#ifdef __CUDACC__
  // If `there` is false, nothing is read, and zeros are written. asm is one instruction of the
  // GPU: "r" is a register of 32 bits, "l" one of 64, "n" a constant. With "memory", the
  // compiler moves no access across it. The instruction takes the address within shared
  // memory, and how many of the 16 bytes to read. The rest become zeros.
  __device__ void copy(uint4* to, const void* from, bool there) {
    uint32_t address = __cvta_generic_to_shared(to);
    int num_bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(num_bytes)
                 : "memory");
  }
  __device__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int n>
  __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
  }
#else
  // A GPU copies at some time between copy() and wait(). On the CPU it happens at the last
  // moment, and until then there are NaNs. They show if a kernel reads too early, or begins a
  // copy while other lanes still read.
  struct Copy {
    uint4* to;
    const uint4* from;
  };
  // The most that are on their way. With more, the oldest are made.
  static constexpr int most_copies = 512, most_groups = 16;
  Copy copies[most_copies];
  int begin = 0, end = 0, groups[most_groups], num_groups = 0;
  __device__ void copy(uint4* to, const void* from, bool there) {
    *to = make_uint4(~0u, ~0u, ~0u, ~0u);
    if (end - begin == most_copies) make(begin + 1);
    copies[end++ % most_copies] = {to, there ? static_cast<const uint4*>(from) : nullptr};
  }
  __device__ void close_group() {
    if (num_groups == most_groups) wait<most_groups - 1>();
    groups[num_groups++] = end;
  }
  template <int n>
  __device__ void wait() {
    if (num_groups <= n) return;
    make(groups[num_groups - n - 1]);
    for (int i = 0; i < n; ++i) groups[i] = groups[num_groups - n + i];
    num_groups = n;
  }
  __device__ void make(int last) {
    for (; begin < last; ++begin) {
      Copy copy = copies[begin % most_copies];
      *copy.to = copy.from ? *copy.from : make_uint4(0, 0, 0, 0);
    }
  }
#endif
};

// Asks for 128 bytes to be brought into the L2 cache, and does not wait for them.
__device__ inline void prefetch(const void* address) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}
