#pragma once

#include <cstdint>

#include "../numbers.cuh"

// A number of 8 bits: a sign, 4 bits of exponent and 3 of mantissa (e4m3). The largest is 448.
struct Fp8 {
  uint8_t bits;
};

// What the kernels are compiled for. decode.py of the ladder writes new lines here for each
// model. When the compiler knows these numbers, it can unroll loops and keep arrays in
// registers.
using Number = __half;    // in q and out
using KvNumber = __half;  // in the caches
constexpr int head_size = 128;
constexpr int queries_per_kv_head = 4;
constexpr int block_size = 16;
constexpr int shared_bytes = 232448;  // the most that a block may have on this card
