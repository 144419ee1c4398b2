#pragma once

#include <cmath>
#include <cstdint>

#include "../ladder/shape.cuh"

// The nearest number of 8 bits; of two that are equally near, the one whose last bit is 0.
// What is larger than 448, infinity too, becomes 448. A NaN stays one.
template <>
__device__ inline Fp8 from_float<Fp8>(float number) {
  uint32_t bits = __float_as_uint(number), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return {uint8_t(sign | 0x7f)};
  float clamped = fminf(__uint_as_float(size), 448.0f);
  // Below 2^-6 neighbours are 2^-9 apart. If 8 of these come out, the bits are those of 2^-6.
  if (clamped < 0.015625f) return {uint8_t(sign | uint32_t(rintf(512.0f * clamped)))};
  size = __float_as_uint(clamped);
  size += 0x7ffff + (size >> 20 & 1);  // so that cutting 20 bits off rounds
  // An exponent counts from 7 here, and from 127 in a float.
  return {uint8_t(sign | ((size >> 20) - ((127 - 7) << 3)))};
}
