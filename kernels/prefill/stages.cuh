#pragma once

#include <cstdint>

#include "hopper_shape.cuh"

// Waiting between threads that copy and threads that compute. A barrier in shared memory
// counts arrivals, and bytes that are on their way. When all have come, its phase ends: the
// next phase counts anew. A thread that waits names the parity of a phase, and goes on when
// that phase has ended.
//
// On the CPU there is no such barrier. There the warp that copies and those that compute go
// step by step: each waits for all others once for each stage. That orders more than a GPU
// does, and what is copied arrives in the last moment.
#ifdef __CUDACC__
struct Barrier {
  uint64_t state;
  __device__ uint32_t address() { return uint32_t(__cvta_generic_to_shared(&state)); }
  __device__ void begin(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Arrives, and says how many bytes will come in this phase.
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void wait(uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
};
// What ordinary stores wrote into shared memory is seen by copies and products after this.
__device__ inline void show_to_copies_and_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Waits for the threads of a group.
__device__ inline void wait_for_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(group_threads) : "memory");
}
__device__ inline void step_together() {}
// A group of four warps gives registers back, or takes more.
template <int count>
__device__ inline void give_registers_to_others() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
#else
struct Barrier {
  __device__ void begin(int) {}
  __device__ void arrive() {}
  __device__ void arrive_and_expect(int) {}
  __device__ void wait(uint32_t) {}
};
__device__ inline void show_to_copies_and_products() {}
__device__ inline void step_together() { __syncthreads(); }
__device__ inline void wait_for_group(int) { step_together(); }
template <int count>
__device__ inline void give_registers_to_others() {}
template <int count>
__device__ inline void take_registers() {}
#endif

// The stages of the keys, or of the values. They are used in turn: fill n is in stage
// n % num_stages.
struct Stages {
  Barrier full[num_stages], empty[num_stages];

  // One thread calls it, before any other uses the stages.
  __device__ void begin() {
    for (int i = 0; i < num_stages; ++i) full[i].begin(1), empty[i].begin(num_groups * 4);
  }
  static __device__ int stage(int n) { return n % num_stages; }
  static __device__ uint32_t parity(int n) { return n / num_stages % 2; }
  // For the warp that copies: until fill n may begin.
  __device__ void wait_until_empty(int n) {
    if (n >= num_stages) empty[stage(n)].wait(parity(n - num_stages));
  }
  // For those that compute: until fill n is there.
  __device__ void wait_until_full(int n) {
    step_together();
    full[stage(n)].wait(parity(n));
  }
  // Each lane of a warp that computes calls it when it needs fill n no more.
  __device__ void release(int n) {
    if (threadIdx.x % 32 == 0) empty[stage(n)].arrive();
  }
};
