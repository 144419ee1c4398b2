// Arithmetic with a named rounding: to nearest (rn), to zero (rz), up (ru) or down (rd). It is
// never merged into a multiply-add.
#pragma once
#include <cfenv>
#include <limits>

#include "language.h"

namespace cuda_on_cpu {

// `volatile` stops the compiler from computing it early or in another way.
template <class T, class Compute>
T rounded(int mode, Compute compute) {
  int before = mode == FE_TONEAREST ? mode : fegetround();
  if (before != mode) fesetround(mode);
  volatile T result = compute();
  if (before != mode) fesetround(before);
  return result;
}

// Converts as a GPU does: a number out of range becomes the nearest in range, and NaN becomes
// 0 (with 64 bits, the smallest number).
template <class To, class From>
To to_whole(From value) {
  using Limits = std::numeric_limits<To>;
  if (value != value) return sizeof(To) == 8 ? To(1ull << 63) : 0;
  if (value >= From(Limits::max())) return Limits::max();
  if (value <= From(Limits::min())) return Limits::min();
  return To(value);
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_UNARY(T, name, mode, expression)                         \
  inline T name(T a) {                                                       \
    volatile T x = a;                                                        \
    return cuda_on_cpu::rounded<T>(mode, [&]() -> T { return expression; }); \
  }
#define CUDA_ON_CPU_BINARY(T, name, mode, expression)                        \
  inline T name(T a, T b) {                                                  \
    volatile T x = a, y = b;                                                 \
    return cuda_on_cpu::rounded<T>(mode, [&]() -> T { return expression; }); \
  }
#define CUDA_ON_CPU_FMA(T, name, mode, function)                                    \
  inline T name(T a, T b, T c) {                                                    \
    volatile T x = a, y = b, z = c;                                                 \
    return cuda_on_cpu::rounded<T>(mode, [&]() -> T { return function(x, y, z); }); \
  }
#define CUDA_ON_CPU_CONVERSION(From, To, name, mode)                      \
  inline To name(From a) {                                                \
    volatile From x = a;                                                  \
    return cuda_on_cpu::rounded<To>(mode, [&]() -> To { return To(x); }); \
  }
#define CUDA_ON_CPU_TO_WHOLE(From, from, suffix, function)         \
  inline int __##from##2int_##suffix(From a) {                     \
    return cuda_on_cpu::to_whole<int>(function(a));                \
  }                                                                \
  inline unsigned __##from##2uint_##suffix(From a) {               \
    return cuda_on_cpu::to_whole<unsigned>(function(a));           \
  }                                                                \
  inline long long __##from##2ll_##suffix(From a) {                \
    return cuda_on_cpu::to_whole<long long>(function(a));          \
  }                                                                \
  inline unsigned long long __##from##2ull_##suffix(From a) {      \
    return cuda_on_cpu::to_whole<unsigned long long>(function(a)); \
  }
#define CUDA_ON_CPU_ROUNDING(suffix, mode, whole)                                 \
  CUDA_ON_CPU_BINARY(float, __fadd_##suffix, mode, x + y)                         \
  CUDA_ON_CPU_BINARY(float, __fsub_##suffix, mode, x - y)                         \
  CUDA_ON_CPU_BINARY(float, __fmul_##suffix, mode, x* y)                          \
  CUDA_ON_CPU_BINARY(float, __fdiv_##suffix, mode, x / y)                         \
  CUDA_ON_CPU_UNARY(float, __frcp_##suffix, mode, 1.0f / x)                       \
  CUDA_ON_CPU_UNARY(float, __fsqrt_##suffix, mode, sqrtf(x))                      \
  CUDA_ON_CPU_FMA(float, __fmaf_##suffix, mode, fmaf)                             \
  CUDA_ON_CPU_BINARY(double, __dadd_##suffix, mode, x + y)                        \
  CUDA_ON_CPU_BINARY(double, __dsub_##suffix, mode, x - y)                        \
  CUDA_ON_CPU_BINARY(double, __dmul_##suffix, mode, x* y)                         \
  CUDA_ON_CPU_BINARY(double, __ddiv_##suffix, mode, x / y)                        \
  CUDA_ON_CPU_UNARY(double, __drcp_##suffix, mode, 1.0 / x)                       \
  CUDA_ON_CPU_UNARY(double, __dsqrt_##suffix, mode, sqrt(x))                      \
  CUDA_ON_CPU_FMA(double, __fma_##suffix, mode, fma)                              \
  CUDA_ON_CPU_CONVERSION(int, float, __int2float_##suffix, mode)                  \
  CUDA_ON_CPU_CONVERSION(unsigned, float, __uint2float_##suffix, mode)            \
  CUDA_ON_CPU_CONVERSION(long long, float, __ll2float_##suffix, mode)             \
  CUDA_ON_CPU_CONVERSION(unsigned long long, float, __ull2float_##suffix, mode)   \
  CUDA_ON_CPU_CONVERSION(long long, double, __ll2double_##suffix, mode)           \
  CUDA_ON_CPU_CONVERSION(unsigned long long, double, __ull2double_##suffix, mode) \
  CUDA_ON_CPU_CONVERSION(double, float, __double2float_##suffix, mode)            \
  CUDA_ON_CPU_TO_WHOLE(float, float, suffix, whole##f)                            \
  CUDA_ON_CPU_TO_WHOLE(double, double, suffix, whole)
CUDA_ON_CPU_ROUNDING(rn, FE_TONEAREST, nearbyint)
CUDA_ON_CPU_ROUNDING(rz, FE_TOWARDZERO, trunc)
CUDA_ON_CPU_ROUNDING(ru, FE_UPWARD, ceil)
CUDA_ON_CPU_ROUNDING(rd, FE_DOWNWARD, floor)
#undef CUDA_ON_CPU_ROUNDING
#undef CUDA_ON_CPU_TO_WHOLE
#undef CUDA_ON_CPU_CONVERSION
#undef CUDA_ON_CPU_FMA
#undef CUDA_ON_CPU_BINARY
#undef CUDA_ON_CPU_UNARY

inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }
inline float __frsqrt_rn(float a) { return float(1 / sqrt(double(a))); }
