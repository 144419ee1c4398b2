// CUDA's additions to C++: keywords, and the variables that tell a thread its place.
#pragma once

#if defined(CUDA_ON_CPU_CHECKED)  // the runtime defines it itself
#elif defined(__SANITIZE_THREAD__)
#define CUDA_ON_CPU_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDA_ON_CPU_CHECKED 1
#endif
#endif
#if !defined(CUDA_ON_CPU_CHECKED)
#define CUDA_ON_CPU_CHECKED 0
#endif

// Checked mode does not see into the C library's functions, so hooks.h replaces these. They
// are declared before any header declares the C library's.
#if CUDA_ON_CPU_CHECKED && !defined(CUDA_ON_CPU_RUNTIME)
#if defined(__APPLE__)
#define WATCHED(name) __asm__("_cuda_on_cpu_" name)
#else
#define WATCHED(name) noexcept __asm__("cuda_on_cpu_" name)
#endif
extern "C" {
void* memcpy(void*, const void*, __SIZE_TYPE__) WATCHED("memcpy");
void* memmove(void*, const void*, __SIZE_TYPE__) WATCHED("memmove");
void* memset(void*, int, __SIZE_TYPE__) WATCHED("memset");
}
#undef WATCHED
#endif

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

using std::isfinite;  // nvcc accepts these without std::
using std::isinf;
using std::isnan;

// The place of a call, as the last parameters of a function.
#define CUDA_ON_CPU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// On the CPU, every function runs where it is called.
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// Fast mode runs blocks on several processor threads, each with its own copy of these
// variables. Checked mode uses one thread.
#if CUDA_ON_CPU_CHECKED
#define CUDA_ON_CPU_LOCAL
#elif defined(__linux__)
#define CUDA_ON_CPU_LOCAL __thread __attribute__((tls_model("initial-exec")))
#else
#define CUDA_ON_CPU_LOCAL __thread
#endif

// The runtime sets these before it lets a thread run. Kernels see constants, as in CUDA. So
// the compiler need not report reads of them, and a kernel that assigns to them does not
// compile.
#if !defined(CUDA_ON_CPU_RUNTIME)
extern "C" {
extern CUDA_ON_CPU_LOCAL const uint3 threadIdx, blockIdx, blockDim, gridDim;
}
constexpr int warpSize = 32;
#endif
