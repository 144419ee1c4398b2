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

// Sixteen numbers: of floats, a register of AVX-512. Others take several.
constexpr int num_lanes = 16;
using Lanes = float __attribute__((vector_size(4 * num_lanes)));
using Ints = int32_t __attribute__((vector_size(4 * num_lanes)));
using Bits = uint32_t __attribute__((vector_size(4 * num_lanes)));
using SignedHalves = int16_t __attribute__((vector_size(2 * num_lanes)));
using Halves = uint16_t __attribute__((vector_size(2 * num_lanes)));
using Bytes = int8_t __attribute__((vector_size(num_lanes)));

template <typename Vector>
inline Vector read_as(const void* from) {
  Vector numbers;
  std::memcpy(&numbers, from, sizeof numbers);
  return numbers;
}

inline Lanes read(const float* from) { return read_as<Lanes>(from); }

inline Lanes read(const int8_t* from) {  // a step of twice the size is one instruction
  auto halves = __builtin_convertvector(read_as<Bytes>(from), SignedHalves);
  return __builtin_convertvector(__builtin_convertvector(halves, Ints), Lanes);
}

inline Lanes read(const Bfloat16* from) {
  Bits bits = __builtin_convertvector(read_as<Halves>(from), Bits) << 16;
  return read_as<Lanes>(&bits);
}

inline float sum_of(Lanes lanes) {
  float sum = 0.0f;
  for (int lane = 0; lane < num_lanes; ++lane) sum += lanes[lane];
  return sum;
}

// The sum of a[i] * b[i].
template <typename A, typename B>
inline float dot(const A* a, const B* b, int64_t size) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + num_lanes <= size; i += num_lanes) sums += read(a + i) * read(b + i);
  float sum = sum_of(sums);
  for (; i < size; ++i) sum += widen(a[i]) * widen(b[i]);
  return sum;
}
