// 16-bit floating point. It converts by name only: torch switches off implicit conversions.
#pragma once
#include "intrinsics.h"

struct alignas(2) __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(2) __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// The compiler's own half type uses the processor's instruction. GCC 12 and Clang 15 have it.
#if defined(CUDA_ON_CPU_PORTABLE_HALF)  // for a test of other compilers
#elif defined(__aarch64__)
typedef __fp16 cuda_on_cpu_half;
#define CUDA_ON_CPU_HAS_HALF
#elif defined(__FLT16_MANT_DIG__)
typedef _Float16 cuda_on_cpu_half;
#define CUDA_ON_CPU_HAS_HALF
#endif
#if defined(CUDA_ON_CPU_HAS_HALF)
inline float __half2float(__half h) { return float(cuda_on_cpu_bits<cuda_on_cpu_half>(h)); }
inline __half __float2half(float f) { return cuda_on_cpu_bits<__half>(cuda_on_cpu_half(f)); }
#else
inline float __half2float(__half h) {
  uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31,
           mantissa = h.bits & 1023;
  // subnormal, or zero
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * float(mantissa) * 0x1p-24f;
  uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return __uint_as_float(sign | wide | mantissa << 13);
}
inline __half __float2half(float f) {
  uint32_t bits = __float_as_uint(f), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return {uint16_t(sign | 0x7fff)};   // NaN
  if (bits >= 0x477ff000) return {uint16_t(sign | 0x7c00)};  // rounds to infinity
  // subnormal: adding 0.5 shifts and rounds the mantissa
  if (bits < 0x38800000)
    return {uint16_t(sign | (__float_as_uint(__uint_as_float(bits) + 0.5f) - 0x3f000000))};
  bits += 0xfff + (bits >> 13 & 1);  // to nearest, ties to even
  return {uint16_t(sign | (bits - 0x38000000) >> 13)};
}
#endif
inline __half __float2half_rn(float f) { return __float2half(f); }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half(x), __float2half(y)};
}
inline __half2 __float22half2_rn(float2 f) { return __floats2half2_rn(f.x, f.y); }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }

// bfloat16 is the upper half of a float.
inline float __bfloat162float(__nv_bfloat16 b) {
  return __uint_as_float(uint32_t(b.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16(float f) {
  uint32_t bits = __float_as_uint(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};  // NaN
  // to nearest, ties to even
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __float2bfloat16(f); }
inline float2 __bfloat1622float2(__nv_bfloat162 b) {
  return {__bfloat162float(b.x), __bfloat162float(b.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16(x), __float2bfloat16(y)};
}
