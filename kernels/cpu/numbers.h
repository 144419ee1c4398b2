// Weights of 8, 16 or 32 bits, and cached numbers of 16 or 32. Sums are float32.
#pragma once
#include <cstdint>
#include <cstring>

struct Bfloat16 {
  uint16_t bits;
};

inline float widen(float number) { return number; }

inline float widen(int8_t number) { return number; }

inline float widen(Bfloat16 number) {
  uint32_t bits = uint32_t(number.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

inline void put(float& to, float number) { to = number; }

// Rounds to the nearest, and to an even one between two. A NaN stays one.
inline void put(Bfloat16& to, float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  to.bits = uint16_t(is_nan ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr int num_lanes = 16;  // floats in a register of AVX-512; the compiler splits them

// The sum of a[i] * b[i]. Each lane sums on its own, so that a loop is one instruction.
template <typename A, typename B>
inline float dot(const A* a, const B* b, int64_t size) {
  float sums[num_lanes] = {}, sum = 0.0f;
  int64_t i = 0;
  for (; i + num_lanes <= size; i += num_lanes)
    for (int lane = 0; lane < num_lanes; ++lane)
      sums[lane] += widen(a[i + lane]) * widen(b[i + lane]);
  for (; i < size; ++i) sum += widen(a[i]) * widen(b[i]);
  for (float lane : sums) sum += lane;
  return sum;
}
