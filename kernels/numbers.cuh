#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// The three formats of the caches, to float and back. Kernels always compute in float.
__device__ inline float to_float(float number) { return number; }
__device__ inline float to_float(__half number) { return __half2float(number); }
__device__ inline float to_float(__nv_bfloat16 number) { return __bfloat162float(number); }

// from_float<T>(number): the T nearest to it.
template <typename T>
__device__ T from_float(float number);
template <>
__device__ inline float from_float<float>(float number) {
  return number;
}
template <>
__device__ inline __half from_float<__half>(float number) {
  return __float2half(number);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float number) {
  return __float2bfloat16(number);
}
