#pragma once

#include <cmath>
#include <cstdint>

#include "matrix.cuh"

// Converts two 8-bit numbers (e4m3) to two 16-bit floats, the first in the lower half. A
// 16-bit float can hold every e4m3 number exactly.
__device__ inline uint32_t widen_pair(uint16_t both) {
#ifdef __CUDACC__
  uint32_t wide;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(both));
  return wide;
#else
  // Moved seven places to the left, the bits are those of a 16-bit float. But its exponent
  // counts from 15 and not from 7, which makes a factor of 2^8.
  auto one = [](uint32_t bits) {
    uint16_t moved = (bits & 0x80) << 8 | (bits & 0x7f) << 7;
    return (bits & 0x7f) == 0x7f ? NAN : 256.0f * unpack<__half>(moved).x;
  };
  return pack<__half>(one(both & 0xff), one(both >> 8));
#endif
}

__device__ inline uint4 widen_half(uint32_t low, uint32_t high) {
  return make_uint4(widen_pair(low & 0xffff), widen_pair(low >> 16), widen_pair(high & 0xffff),
                    widen_pair(high >> 16));
}
