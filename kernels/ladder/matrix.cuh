#pragma once

#include <cstdint>

#include "shape.cuh"

// Two 16-bit numbers in one register, the first in the lower half, and back.
template <typename T>
__device__ uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<__half>(float low, float high) {
  __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&both);
}
template <>
__device__ inline uint32_t pack<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&both);
}
template <typename T>
__device__ inline float2 unpack(uint32_t both) {
  const T* numbers = reinterpret_cast<const T*>(&both);
  return make_float2(to_float(numbers[0]), to_float(numbers[1]));
}

// c += a · b by the tensor cores, for the 32 lanes of a warp together: c is 16 × 8, a 16 × 16,
// b 16 × 8. With r = lane / 4 and s = lane % 4, a lane holds
//   a[0]: row r, columns 2s and 2s+1            a[2]: row r, columns 2s+8 and 2s+9
//   a[1]: row r+8, the same columns as a[0]     a[3]: row r+8, the same columns as a[2]
//   b[0]: rows 2s and 2s+1, column r            b[1]: rows 2s+8 and 2s+9, column r
//   c[0], c[1]: row r, columns 2s and 2s+1      c[2], c[3]: row r+8, the same columns
template <typename T>
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// asm is one instruction of the GPU: "+f" is a float that is read and written, "r" a register
// of 32 bits.
#ifdef __CUDACC__
template <>
__device__ inline void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
// On the CPU: the same product. Each lane asks the others for the rows and columns that it
// needs.
template <typename T>
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  auto dot = [](uint32_t x, uint32_t y) {
    float2 of_x = unpack<T>(x), of_y = unpack<T>(y);
    return of_x.x * of_y.x + of_x.y * of_y.y;
  };
  int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int part = 0; part < 4; ++part) {
    uint4 rows = __shfl_sync(0xffffffff, make_uint4(a[0], a[1], a[2], a[3]), 4 * row + part);
    for (int i = 0; i < 2; ++i) {
      uint2 of_column =
          __shfl_sync(0xffffffff, make_uint2(b[0], b[1]), 4 * (column + i) + part);
      c[i] += dot(rows.x, of_column.x) + dot(rows.z, of_column.y);
      c[2 + i] += dot(rows.y, of_column.x) + dot(rows.w, of_column.y);
    }
  }
}
#endif

// Transposes an 8 × 8 matrix. Lane 4r + s brings row r, columns 2s and 2s+1. It gets column r,
// rows 2s and 2s+1.
__device__ inline uint32_t transpose(uint32_t both) {
  int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  uint32_t first = __shfl_sync(0xffffffff, both, 4 * column + row / 2);
  uint32_t second = __shfl_sync(0xffffffff, both, 4 * (column + 1) + row / 2);
  return row % 2 ? first >> 16 | (second & 0xffff0000) : (first & 0xffff) | second << 16;
}
