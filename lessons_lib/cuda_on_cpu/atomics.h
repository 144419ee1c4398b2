// Atomic operations. Each reads, computes and writes in one step for all threads.
#pragma once
#include "watch.h"

namespace cuda_on_cpu {

// In fast mode blocks run at the same time, so this needs the processor's compare-and-swap.
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

// The new value that each operation makes of the old one.
namespace next {
#define NEXT(name, expression) \
  template <class T>           \
  T name(T old, T value) {     \
    return expression;         \
  }
NEXT(atomicAdd, old + value)
NEXT(atomicSub, old - value)
NEXT(atomicExch, (void(old), value))
NEXT(atomicMax, old < value ? value : old)
NEXT(atomicMin, value < old ? value : old)
NEXT(atomicAnd, old& value)
NEXT(atomicOr, old | value)
NEXT(atomicXor, old ^ value)
NEXT(atomicInc, old >= value ? 0 : old + 1)
NEXT(atomicDec, old == 0 || old > value ? value : old - 1)
#undef NEXT
}  // namespace next

}  // namespace cuda_on_cpu

#define DEFINE_ATOMIC(name, T)                                                    \
  T name(T* address, T value) {                                                   \
    return cuda_on_cpu::change(                                                   \
        address, [=](T old) -> T { return cuda_on_cpu::next::name(old, value); }, \
        __builtin_return_address(0));                                             \
  }
// After a failed atomicCAS the thread gives up its turn, so that the lock's owner can run.
#define DEFINE_SWAP(name, T)                                                     \
  T name(T* address, T expected, T value) {                                      \
    cuda_on_cpu::forgive_read(address, sizeof(T));                               \
    T before = cuda_on_cpu::change(                                              \
        address, [=](T old) -> T { return old == expected ? value : old; },      \
        __builtin_return_address(0));                                            \
    if (before != expected) cuda_on_cpu::block->wait(cuda_on_cpu::State::ready); \
    return before;                                                               \
  }
CUDA_ON_CPU_ATOMICS(DEFINE_ATOMIC, DEFINE_SWAP)

void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if CHECKED
  cuda_on_cpu::epoch.fenced = true;
#endif
}
