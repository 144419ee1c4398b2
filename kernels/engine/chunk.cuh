#pragma once

#include <cstdint>

#include "../numbers.cuh"

// 16 bytes of neighbouring numbers, which a thread loads or stores at once.
template <typename T>
struct alignas(16) Chunk {
  static constexpr int size = 16 / sizeof(T);
  T numbers[size];
};

// The index-th chunk of a row of numbers.
template <typename T>
__device__ Chunk<T>& chunk_of(T* row, int index) {
  return reinterpret_cast<Chunk<T>*>(row)[index];
}
template <typename T>
__device__ const Chunk<T>& chunk_of(const T* row, int index) {
  return reinterpret_cast<const Chunk<T>*>(row)[index];
}

// Calls launch with a null pointer of the dtype's type: 0 float, 1 half, 2 bfloat16. Returns
// what it returns; an unknown dtype is cudaErrorInvalidValue.
template <typename Launch>
int for_dtype(int dtype, Launch launch) {
  if (dtype == 0) return launch(static_cast<float*>(nullptr));
  if (dtype == 1) return launch(static_cast<__half*>(nullptr));
  if (dtype == 2) return launch(static_cast<__nv_bfloat16*>(nullptr));
  return cudaErrorInvalidValue;
}
