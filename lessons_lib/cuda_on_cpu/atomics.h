// Atomic operations. They read, compute and write in one step, whatever other threads do.
#pragma once
#include "watch.h"

namespace cuda_on_cpu {

// In fast mode blocks run at the same time, so these need the processor's compare-and-swap.
template <class T, class Change>
T change(T* address, Change next, const void* code) {
  watch(address, sizeof(T), Access::atomic, code);
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do after = next(before);
  while (!__atomic_compare_exchange(address, &before, &after, true, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED));
  return before;
}

}  // namespace cuda_on_cpu

#define CHANGE(T, expression) \
  return cuda_on_cpu::change( \
      address, [=](T old) -> T { return expression; }, __builtin_return_address(0))

#define DEFINE_ATOMICS(T)                                                        \
  T atomicAdd(T* address, T value) { CHANGE(T, old + value); }                   \
  T atomicSub(T* address, T value) { CHANGE(T, old - value); }                   \
  T atomicMax(T* address, T value) { CHANGE(T, old < value ? value : old); }     \
  T atomicMin(T* address, T value) { CHANGE(T, value < old ? value : old); }     \
  T atomicExch(T* address, T value) { CHANGE(T, (void(old), value)); }           \
  T atomicCAS(T* address, T expected, T value) {                                 \
    cuda_on_cpu::forgive_read(address, sizeof(T));                               \
    T before = cuda_on_cpu::change(                                              \
        address, [=](T old) -> T { return old == expected ? value : old; },      \
        __builtin_return_address(0));                                            \
    if (before != expected) cuda_on_cpu::block->wait(cuda_on_cpu::State::ready); \
    return before;                                                               \
  }
#define DEFINE_BIT_ATOMICS(T)                                  \
  T atomicAnd(T* address, T value) { CHANGE(T, old & value); } \
  T atomicOr(T* address, T value) { CHANGE(T, old | value); }  \
  T atomicXor(T* address, T value) { CHANGE(T, old ^ value); }
// After a failed atomicCAS the thread gives up its turn, so that the lock's owner can run.
DEFINE_ATOMICS(int)
DEFINE_ATOMICS(unsigned)
DEFINE_ATOMICS(unsigned long long)
DEFINE_ATOMICS(float)
DEFINE_ATOMICS(double)
DEFINE_BIT_ATOMICS(int)
DEFINE_BIT_ATOMICS(unsigned)
DEFINE_BIT_ATOMICS(unsigned long long)

unsigned atomicInc(unsigned* address, unsigned most) {
  CHANGE(unsigned, old >= most ? 0 : old + 1);
}

void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if CHECKED
  cuda_on_cpu::epoch.fenced = true;
#endif
}
