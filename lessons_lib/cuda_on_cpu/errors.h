// CUDA's errors. Numbers, names and texts are the same as CUDA's.
#pragma once

#define CUDA_ON_CPU_ERRORS(ERROR)                                                 \
  ERROR(cudaSuccess, 0, "no error")                                               \
  ERROR(cudaErrorInvalidValue, 1, "invalid argument")                             \
  ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                            \
  ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")       \
  ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                      \
  ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
  ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")             \
  ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                    \
  ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")           \
  ERROR(cudaErrorNotReady, 600, "device not ready")                               \
  ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
  ERROR(cudaErrorAssert, 710, "device-side assert triggered")                     \
  ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                \
  ERROR(cudaErrorNotSupported, 801, "operation not supported")                    \
  ERROR(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define CUDA_ON_CPU_ERROR(name, number, words) name = number,
  CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ERROR)
#undef CUDA_ON_CPU_ERROR
};
typedef cudaError cudaError_t;

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
