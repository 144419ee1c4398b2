// CUDA's small vectors, such as float4 and int2. Each is aligned to its size, so that one
// instruction can load it.
#pragma once
#include "language.h"

#define CUDA_ON_CPU_VECTORS(T, name)                                                 \
  struct name##1 { T x; };                                                           \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                 \
  struct name##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                 \
  CUDA_ON_CPU_MAKE_VECTORS(T, name)
#define CUDA_ON_CPU_MAKE_VECTORS(T, name)                    \
  inline name##1 make_##name##1(T x) { return {x}; }         \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_ON_CPU_VECTORS(float, float)
CUDA_ON_CPU_VECTORS(double, double)
CUDA_ON_CPU_VECTORS(int, int)
CUDA_ON_CPU_VECTORS(long, long)
CUDA_ON_CPU_VECTORS(unsigned long, ulong)
CUDA_ON_CPU_VECTORS(long long, longlong)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong)
CUDA_ON_CPU_VECTORS(short, short)
CUDA_ON_CPU_VECTORS(unsigned short, ushort)
CUDA_ON_CPU_VECTORS(signed char, char)
CUDA_ON_CPU_VECTORS(unsigned char, uchar)
struct uint1 {
  unsigned x;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
CUDA_ON_CPU_MAKE_VECTORS(unsigned, uint)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
#undef CUDA_ON_CPU_MAKE_VECTORS
#undef CUDA_ON_CPU_VECTORS
