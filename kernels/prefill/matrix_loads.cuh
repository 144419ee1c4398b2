#pragma once

#include <cstdint>

// Matrices of 8 × 8 numbers of 16 bits, from shared memory into the lanes that a product of
// matrices needs them in (../ladder/matrix.cuh). A row of such a matrix is a chunk of 16
// bytes. All 32 lanes bring the address of one row: lane 8i + j that of row j of matrix i.
// With r = lane / 4 and s = lane % 4, a lane gets in to[i], of matrix i,
//   load_matrices:    row r, columns 2s and 2s+1
//   load_transposed:  column r, rows 2s and 2s+1

// asm is one instruction of the GPU. It takes the address within shared memory. With "memory",
// the compiler moves no access across it.
#ifdef __CUDACC__
__device__ inline void load_matrices(uint32_t (&to)[4], const uint4* row) {
  uint32_t address = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&to)[4], const uint4* row) {
  uint32_t address = __cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
#else
// On the CPU: each lane asks the others for the addresses of the rows, and reads for itself.
__device__ inline void load_matrices(uint32_t (&to)[4], const uint4* row) {
  int r = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i)
    to[i] = reinterpret_cast<const uint32_t*>(__shfl_sync(0xffffffff, row, 8 * i + r))[s];
}
__device__ inline void load_transposed(uint32_t (&to)[4], const uint4* row) {
  int r = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
  auto number = [&](int lane) {
    return reinterpret_cast<const uint16_t*>(__shfl_sync(0xffffffff, row, lane))[r];
  };
  for (int i = 0; i < 4; ++i) {
    uint32_t first = number(8 * i + 2 * s), second = number(8 * i + 2 * s + 1);
    to[i] = first | second << 16;
  }
}
#endif

// 2 to the power x, by the GPU's instruction for it.
__device__ inline float power_of_2(float x) {
#ifdef __CUDACC__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
