// CUDA's built-in functions. Functions at which threads meet are in the runtime (block.h,
// warp.h). The others compute.
#pragma once
#include <type_traits>

#include "bits.h"
#include "device.h"
#include "fast_math.h"
#include "memory.h"
#include "rounding.h"
#include "streams.h"

// `what` is the learner's name for the function, for reports.
namespace cuda_on_cpu {
void block_barrier(const char* what, const char* file, int line);
int block_count(int predicate, const char* what, const char* file, int line);
void warp_barrier(unsigned mask, const char* what, const char* file, int line);
unsigned ballot(unsigned mask, int predicate, const char* what, const char* file, int line);
enum class Shuffle { index, up, down, exclusive_or };
void shuffle(Shuffle kind, unsigned mask, const void* value, void* result, size_t bytes,
             int distance, int width, const char* what, const char* file, int line);
// Gathers the value of each lane in the mask that has not returned. Returns these lanes.
unsigned gather(unsigned mask, unsigned long long value, unsigned long long (&values)[32],
                const char* what, const char* file, int line);
[[noreturn]] void trap_called(const char* file, int line);
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}  // namespace cuda_on_cpu

[[gnu::always_inline]] inline void __syncthreads(CUDA_ON_CPU_HERE) {
  cuda_on_cpu::block_barrier("__syncthreads", file, line);
}
[[gnu::always_inline]] inline int __syncthreads_count(int predicate, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::block_count(predicate, "__syncthreads_count", file, line);
}
[[gnu::always_inline]] inline int __syncthreads_or(int predicate, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::block_count(predicate, "__syncthreads_or", file, line) != 0;
}
[[gnu::always_inline]] inline int __syncthreads_and(int predicate, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::block_count(!predicate, "__syncthreads_and", file, line) == 0;
}
[[gnu::always_inline]] inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_ON_CPU_HERE) {
  cuda_on_cpu::warp_barrier(mask, "__syncwarp", file, line);
}
[[gnu::always_inline]] inline unsigned __ballot_sync(unsigned mask, int predicate,
                                                     CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::ballot(mask, predicate, "__ballot_sync", file, line);
}
[[gnu::always_inline]] inline int __any_sync(unsigned mask, int predicate, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::ballot(mask, predicate, "__any_sync", file, line) != 0;
}
[[gnu::always_inline]] inline int __all_sync(unsigned mask, int predicate, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::ballot(mask, !predicate, "__all_sync", file, line) == 0;
}
unsigned __activemask();

#define CUDA_ON_CPU_SHUFFLE(name, kind)                                                \
  template <class T>                                                                   \
  T name(unsigned mask, T value, int distance, int width = 32, CUDA_ON_CPU_HERE) {     \
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable<T>::value,             \
                  "a shuffle takes up to 16 bytes");                                   \
    T result;                                                                          \
    cuda_on_cpu::shuffle(cuda_on_cpu::Shuffle::kind, mask, &value, &result, sizeof(T), \
                         distance, width, #name, file, line);                          \
    return result;                                                                     \
  }
CUDA_ON_CPU_SHUFFLE(__shfl_sync, index)
CUDA_ON_CPU_SHUFFLE(__shfl_up_sync, up)
CUDA_ON_CPU_SHUFFLE(__shfl_down_sync, down)
CUDA_ON_CPU_SHUFFLE(__shfl_xor_sync, exclusive_or)

// The lanes that bring the same value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, CUDA_ON_CPU_HERE) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "__match_any_sync compares numbers of 4 or 8 bytes");
  unsigned long long mine = 0, values[32];
  __builtin_memcpy(&mine, &value, sizeof value);
  unsigned lanes = cuda_on_cpu::gather(mask, mine, values, "__match_any_sync", file, line);
  for (int lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1 && values[lane] != mine) lanes &= ~(1u << lane);
  return lanes;
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all, CUDA_ON_CPU_HERE) {
  *all = __match_any_sync(mask, value, file, line) == mask;
  return *all ? mask : 0;
}

#define CUDA_ON_CPU_REDUCE(name, T, expression)                                             \
  inline T name(unsigned mask, T value, CUDA_ON_CPU_HERE) {                                 \
    unsigned long long values[32];                                                          \
    unsigned lanes = cuda_on_cpu::gather(mask, unsigned(value), values, #name, file, line); \
    int first = __builtin_ctz(lanes);                                                       \
    T a = T(values[first]);                                                                 \
    for (int lane = first + 1; lane < 32; ++lane) {                                         \
      T b = T(values[lane]);                                                                \
      if (lanes >> lane & 1) a = expression;                                                \
    }                                                                                       \
    return a;                                                                               \
  }
CUDA_ON_CPU_REDUCE(__reduce_add_sync, unsigned, a + b)
CUDA_ON_CPU_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
CUDA_ON_CPU_REDUCE(__reduce_min_sync, unsigned, b < a ? b : a)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, int, b < a ? b : a)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, int, a < b ? b : a)
CUDA_ON_CPU_REDUCE(__reduce_and_sync, unsigned, a& b)
CUDA_ON_CPU_REDUCE(__reduce_or_sync, unsigned, a | b)
CUDA_ON_CPU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef CUDA_ON_CPU_REDUCE

// CUDA has each of these for some types only.
#define CUDA_ON_CPU_ATOMIC(name, T) T name(T* address, T value);
#define CUDA_ON_CPU_SWAP(name, T) T name(T* address, T expected, T value);
#define CUDA_ON_CPU_ATOMICS(ATOMIC, SWAP)      \
  ATOMIC(atomicAdd, int)                       \
  ATOMIC(atomicAdd, unsigned)                  \
  ATOMIC(atomicAdd, unsigned long long)        \
  ATOMIC(atomicAdd, float)                     \
  ATOMIC(atomicAdd, double)                    \
  ATOMIC(atomicSub, int)                       \
  ATOMIC(atomicSub, unsigned)                  \
  ATOMIC(atomicExch, int)                      \
  ATOMIC(atomicExch, unsigned)                 \
  ATOMIC(atomicExch, unsigned long long)       \
  ATOMIC(atomicExch, float)                    \
  ATOMIC(atomicInc, unsigned)                  \
  ATOMIC(atomicDec, unsigned)                  \
  SWAP(atomicCAS, int)                         \
  SWAP(atomicCAS, unsigned)                    \
  SWAP(atomicCAS, unsigned long long)          \
  SWAP(atomicCAS, unsigned short)              \
  CUDA_ON_CPU_WHOLE_ATOMICS(ATOMIC, int)       \
  CUDA_ON_CPU_WHOLE_ATOMICS(ATOMIC, unsigned)  \
  CUDA_ON_CPU_WHOLE_ATOMICS(ATOMIC, long long) \
  CUDA_ON_CPU_WHOLE_ATOMICS(ATOMIC, unsigned long long)
#define CUDA_ON_CPU_WHOLE_ATOMICS(ATOMIC, T) \
  ATOMIC(atomicMax, T)                       \
  ATOMIC(atomicMin, T) ATOMIC(atomicAnd, T) ATOMIC(atomicOr, T) ATOMIC(atomicXor, T)
CUDA_ON_CPU_ATOMICS(CUDA_ON_CPU_ATOMIC, CUDA_ON_CPU_SWAP)

// An atomic operation for one block, or for the host as well, is the same as the others here.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin

void __threadfence();
inline void __threadfence_block() {}
inline void __threadfence_system() { __threadfence(); }
template <class T>
T __ldg(const T* address) {
  return *address;
}

// Time in nanoseconds. A GPU counts the ticks of its clock instead.
long long clock64();
// Other threads run in the meantime.
void __nanosleep(unsigned nanoseconds);
[[noreturn]] inline void __trap(CUDA_ON_CPU_HERE) { cuda_on_cpu::trap_called(file, line); }

#undef assert
#define assert(condition) \
  ((condition) ? void() : cuda_on_cpu::assertion_failed(#condition, __FILE__, __LINE__))

// For these pairs of types only, as in CUDA. nvcc calls an int and a long long ambiguous.
#define CUDA_ON_CPU_MIN_MAX(A, B, Result)                           \
  constexpr Result min(A a, B b) {                                  \
    return static_cast<Result>(b) < static_cast<Result>(a) ? b : a; \
  }                                                                 \
  constexpr Result max(A a, B b) {                                  \
    return static_cast<Result>(a) < static_cast<Result>(b) ? b : a; \
  }
#define CUDA_ON_CPU_MIN_MAX_OF_WHOLE(T)                   \
  CUDA_ON_CPU_MIN_MAX(T, T, T)                            \
  CUDA_ON_CPU_MIN_MAX(unsigned T, unsigned T, unsigned T) \
  CUDA_ON_CPU_MIN_MAX(T, unsigned T, unsigned T)          \
  CUDA_ON_CPU_MIN_MAX(unsigned T, T, unsigned T)
CUDA_ON_CPU_MIN_MAX_OF_WHOLE(int)
CUDA_ON_CPU_MIN_MAX_OF_WHOLE(long)
CUDA_ON_CPU_MIN_MAX_OF_WHOLE(long long)
CUDA_ON_CPU_MIN_MAX(float, float, float)
CUDA_ON_CPU_MIN_MAX(double, double, double)
CUDA_ON_CPU_MIN_MAX(float, double, double)
CUDA_ON_CPU_MIN_MAX(double, float, double)
#undef CUDA_ON_CPU_MIN_MAX_OF_WHOLE
#undef CUDA_ON_CPU_MIN_MAX
