#pragma once

#include "hopper_shape.cuh"

// The instruction wgmma: its text for the GPU's assembler, for each type and width.
#ifdef __CUDACC__
// Tells the hardware where a matrix is in shared memory, in panels of 128 bytes a row. One
// more means 16 bytes further on.
//   next_panel: bytes from 64 dims to the next 64, where a product wants more than these
__device__ inline uint64_t describe(const uint4* matrix, int next_panel) {
  uint64_t address = __cvta_generic_to_shared(matrix), eight_rows = 8 * 128;
  uint64_t swizzle_of_128 = 1;
  return address >> 4 | uint64_t(next_panel >> 4) << 16 | eight_rows >> 4 << 32 |
         swizzle_of_128 << 62;
}

// c = a · b, or c += a · b, for a group of four warps: 64 rows of c, and 16 columns of a and
// rows of b. b has as many columns as c, 64 or 128.
//   a, b as uint64_t: descriptions of what is in shared memory. A row of a is a row there. So
//     is a column of b, in the first function (keys); in the second, a row of b (values).
//   a as registers: a lane's part of the 16 rows of its warp (../ladder/matrix.cuh)
template <typename T, int n>
__device__ void product(float (&c)[n][4], uint64_t a, uint64_t b, int add);
template <typename T, int n>
__device__ void product(float (&c)[n][4], const uint32_t (&a)[4], uint64_t b);

// The registers of c are %0 to %31 or to %63, and what comes after them is a and b.
#define GROUP_REGISTERS_32                                                                 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define GROUP_REGISTERS_64                                                                \
  GROUP_REGISTERS_32                                                                      \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52," \
  "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GROUP_FOUR(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define GROUP_OPERANDS_32                                                                   \
  GROUP_FOUR(0), GROUP_FOUR(1), GROUP_FOUR(2), GROUP_FOUR(3), GROUP_FOUR(4), GROUP_FOUR(5), \
      GROUP_FOUR(6), GROUP_FOUR(7)
#define GROUP_OPERANDS_64                                                          \
  GROUP_OPERANDS_32, GROUP_FOUR(8), GROUP_FOUR(9), GROUP_FOUR(10), GROUP_FOUR(11), \
      GROUP_FOUR(12), GROUP_FOUR(13), GROUP_FOUR(14), GROUP_FOUR(15)

#define GROUP_PRODUCT(Type, type, columns, registers, after, after_2, after_3, after_4,       \
                      after_5)                                                                \
  template <>                                                                                 \
  __device__ inline void product<Type>(float (&c)[columns / 8][4], uint64_t a, uint64_t b,    \
                                       int add) {                                             \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" after_3                             \
                 ", 0;\n"                                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type        \
                 " {" GROUP_REGISTERS_##registers "}, %" after ", %" after_2                  \
                                                  ", add, 1, 1, 0, 0;\n}"                     \
                 : GROUP_OPERANDS_##registers                                                 \
                 : "l"(a), "l"(b), "r"(add));                                                 \
  }                                                                                           \
  template <>                                                                                 \
  __device__ inline void product<Type>(float (&c)[columns / 8][4], const uint32_t (&a)[4],    \
                                       uint64_t b) {                                          \
    asm volatile(                                                                             \
        "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                        \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                 \
        " {" GROUP_REGISTERS_##registers "}, {%" after ",%" after_2 ",%" after_3 ",%" after_4 \
                                         "}, %" after_5 ", add, 1, 1, 1;\n}"                  \
        : GROUP_OPERANDS_##registers                                                          \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                \
  }
GROUP_PRODUCT(__half, "f16", 64, 32, "32", "33", "34", "35", "36")
GROUP_PRODUCT(__half, "f16", 128, 64, "64", "65", "66", "67", "68")
GROUP_PRODUCT(__nv_bfloat16, "bf16", 64, 32, "32", "33", "34", "35", "36")
GROUP_PRODUCT(__nv_bfloat16, "bf16", 128, 64, "64", "65", "66", "67", "68")
#endif
