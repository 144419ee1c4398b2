// Whole numbers and their bits.
#pragma once
#include "language.h"

template <class To, class From>
To cuda_on_cpu_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int a) { return cuda_on_cpu_bits<float>(a); }
inline float __uint_as_float(unsigned a) { return cuda_on_cpu_bits<float>(a); }
inline int __float_as_int(float a) { return cuda_on_cpu_bits<int>(a); }
inline unsigned __float_as_uint(float a) { return cuda_on_cpu_bits<unsigned>(a); }
inline double __longlong_as_double(long long a) { return cuda_on_cpu_bits<double>(a); }
inline long long __double_as_longlong(double a) { return cuda_on_cpu_bits<long long>(a); }

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline int __clz(int a) { return a ? __builtin_clz(unsigned(a)) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
inline unsigned long long __brevll(unsigned long long a) {
  unsigned long long reversed = 0;
  for (int i = 0; i < 64; ++i) reversed |= (a >> i & 1) << (63 - i);
  return reversed;
}
inline unsigned __brev(unsigned a) { return unsigned(__brevll(a) >> 32); }

// The upper half of a product, and products of the lower 24 bits.
inline int __mulhi(int a, int b) { return int((long long)(a)*b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((unsigned long long)(a)*b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return (long long)((__int128)(a)*b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)(a)*b >> 64);
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mul24(int a, int b) {
  return int(unsigned(int(unsigned(a) << 8) >> 8) * unsigned(int(unsigned(b) << 8) >> 8));
}
inline unsigned __usad(unsigned a, unsigned b, unsigned sum) {
  return (a > b ? a - b : b - a) + sum;
}
inline unsigned __sad(int a, int b, unsigned sum) {
  return (a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a)) + sum;
}
// Means, rounded down (h) or up (rh), without an overflow.
inline int __hadd(int a, int b) { return int(((long long)(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((long long)(a) + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) {
  return unsigned(((unsigned long long)(a) + b) >> 1);
}
inline unsigned __urhadd(unsigned a, unsigned b) {
  return unsigned(((unsigned long long)(a) + b + 1) >> 1);
}

// 32 bits of high:low, shifted. The shift counts modulo 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)(high) << 32 | low) >> (shift & 31));
}

// Four of the eight bytes of b:a. Each hexadecimal digit of the selector chooses one. If its
// upper bit is set, the byte's sign fills the byte.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long bytes = a | (unsigned long long)(b) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned digit = selector >> 4 * i, byte = unsigned(bytes >> (digit & 7) * 8) & 0xff;
    result |= (digit & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
  }
  return result;
}
// Four products of bytes, added.
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i)
    sum += int((signed char)(a >> 8 * i)) * (signed char)(b >> 8 * i);
  return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 4; ++i) sum += (a >> 8 * i & 0xff) * (b >> 8 * i & 0xff);
  return sum;
}
