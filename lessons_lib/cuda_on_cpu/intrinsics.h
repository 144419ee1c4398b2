// CUDA's built-in functions. Those at which threads meet are in the runtime (block.h, warp.h).
// The rest is arithmetic.
#pragma once
#include <type_traits>

#include "launch.h"

#define CUDA_ON_CPU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// `what` is the learner's name for it, for reports.
namespace cuda_on_cpu {
void block_barrier(const char* what, const char* file, int line);
int block_count(int predicate, const char* what, const char* file, int line);
void warp_barrier(unsigned mask, const char* what, const char* file, int line);
unsigned ballot(unsigned mask, int predicate, const char* what, const char* file, int line);
enum class Shuffle { index, up, down, exclusive_or };
void shuffle(Shuffle kind, unsigned mask, const void* value, void* result, size_t bytes,
             int distance, int width, const char* what, const char* file, int line);
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

#define CUDA_ON_CPU_ATOMICS(T)       \
  T atomicAdd(T* address, T value);  \
  T atomicSub(T* address, T value);  \
  T atomicMax(T* address, T value);  \
  T atomicMin(T* address, T value);  \
  T atomicExch(T* address, T value); \
  T atomicCAS(T* address, T expected, T value);
#define CUDA_ON_CPU_BIT_ATOMICS(T)  \
  T atomicAnd(T* address, T value); \
  T atomicOr(T* address, T value);  \
  T atomicXor(T* address, T value);
CUDA_ON_CPU_ATOMICS(int)
CUDA_ON_CPU_ATOMICS(unsigned)
CUDA_ON_CPU_ATOMICS(unsigned long long)
CUDA_ON_CPU_ATOMICS(float)
CUDA_ON_CPU_ATOMICS(double)
CUDA_ON_CPU_BIT_ATOMICS(int)
CUDA_ON_CPU_BIT_ATOMICS(unsigned)
CUDA_ON_CPU_BIT_ATOMICS(unsigned long long)

unsigned atomicInc(unsigned* address, unsigned most);

void __threadfence();
inline void __threadfence_block() {}
inline void __threadfence_system() { __threadfence(); }
template <class T>
T __ldg(const T* address) {
  return *address;
}

#undef assert
#define assert(condition) \
  ((condition) ? void() : cuda_on_cpu::assertion_failed(#condition, __FILE__, __LINE__))

// These are macros, because the C library declares some of the names itself.
#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define rsqrtf(x) (1.0f / sqrtf(x))
#define exp10f(x) powf(10.0f, x)

inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
template <class To, class From>
To cuda_on_cpu_bits(From from) {
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int a) { return cuda_on_cpu_bits<float>(a); }
inline float __uint_as_float(unsigned a) { return cuda_on_cpu_bits<float>(a); }
inline int __float_as_int(float a) { return cuda_on_cpu_bits<int>(a); }
inline unsigned __float_as_uint(float a) { return cuda_on_cpu_bits<unsigned>(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
// Four of the eight bytes of b:a. Each hexadecimal digit of the selector chooses one. (Digits
// from 8 on are not supported.)
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long bytes = a | (unsigned long long)(b) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= unsigned(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}
inline int __clz(int a) { return a ? __builtin_clz(unsigned(a)) : 32; }

// For these pairs of types only, as in CUDA. For an int and a long long, nvcc finds the call
// ambiguous.
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
