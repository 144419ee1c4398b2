// A GPU's own memory, as launchers use it: cudaMalloc, cudaMemcpy and similar functions.
#pragma once
#include "errors.h"
#include "launch.h"

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                   cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4;

namespace cuda_on_cpu {

// A request for memory. `common`: the host reaches the memory too.
struct Asked {
  const char* what;
  bool common;
  size_t element;                // the bytes of one; 0 if the type is not known
  const unsigned char* padding;  // of one element (launch.h)
  const char* file;
  int line;
};
cudaError_t allocate(void** pointer, size_t bytes, const Asked& asked);
cudaError_t release(void* memory, const char* what, const char* file, int line);
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 const char* what, const char* file, int line);
cudaError_t set(void* to, int value, size_t bytes, const char* what, const char* file,
                int line);
cudaError_t copy_symbol(void* to, const void* from, size_t offset, size_t bytes,
                        size_t symbol_bytes, const char* what, const char* file, int line);

template <class T>
cudaError_t allocate_typed(T** pointer, size_t bytes, const char* what, bool common,
                           const char* file, int line) {
  Asked asked{what, common, 0, nullptr, file, line};
  if constexpr (!std::is_void_v<T>) asked.element = sizeof(T), asked.padding = padding<T>();
  return allocate((void**)pointer, bytes, asked);
}

}  // namespace cuda_on_cpu

template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::allocate_typed(pointer, bytes, "cudaMalloc", false, file, line);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::allocate_typed(pointer, bytes, "cudaMallocAsync", false, file, line);
}
template <class T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = cudaMemAttachGlobal,
                              CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::allocate_typed(pointer, bytes, "cudaMallocManaged", true, file, line);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned = cudaHostAllocDefault,
                           CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::allocate_typed(pointer, bytes, "cudaMallocHost", true, file, line);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::allocate_typed(pointer, bytes, "cudaHostAlloc", true, file, line);
}
inline cudaError_t cudaFree(void* memory, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::release(memory, "cudaFree", file, line);
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::release(memory, "cudaFreeAsync", file, line);
}
inline cudaError_t cudaFreeHost(void* memory, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::release(memory, "cudaFreeHost", file, line);
}

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                              CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::copy(to, from, bytes, kind, "cudaMemcpy", file, line);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t = nullptr,
                                   CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::copy(to, from, bytes, kind, "cudaMemcpyAsync", file, line);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::set(to, value, bytes, "cudaMemset", file, line);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr,
                                   CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::set(to, value, bytes, "cudaMemsetAsync", file, line);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);

// A symbol is a variable with __constant__ or __device__.
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes,
                               size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice,
                               CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::copy_symbol((char*)&symbol + offset, from, offset, bytes, sizeof(T),
                                  "cudaMemcpyToSymbol", file, line);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost, CUDA_ON_CPU_HERE) {
  return cuda_on_cpu::copy_symbol(to, (const char*)&symbol + offset, offset, bytes, sizeof(T),
                                  "cudaMemcpyFromSymbol", file, line);
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = (void*)&symbol;
  return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}
