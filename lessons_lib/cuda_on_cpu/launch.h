// A launch: the C++ for `kernel<<<grid, block, shared_bytes, stream>>>(arguments)` and for
// `__shared__`, and the few functions of CUDA's runtime that launchers call.
#pragma once
#include <tuple>
#include <type_traits>
#include <utility>

#include "errors.h"
#include "vectors.h"

typedef struct CUstream_st* cudaStream_t;
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

namespace cuda_on_cpu {

constexpr size_t shared_bytes_by_default = 48 * 1024;
constexpr size_t shared_bytes_at_most = 227 * 1024;  // an H100's
constexpr int not_set = -1;

struct Launch {
  const char* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
  const char* file;
  int line;
  const void* library;             // an address in the kernel's library
  const void* function = nullptr;  // the kernel's address, if its name means one function
  int shared_allowed = not_set;    // the kernel's last cudaFuncSetAttribute
};

// Runs `body(arguments)` once for each thread of the grid. An error becomes cudaGetLastError()
// and never an exception.
void run_grid(const Launch& launch, void (*body)(void*), void* arguments, size_t size);
void* shared_variable(const void* identity, const char* name, size_t bytes, size_t alignment,
                      size_t element, const unsigned char* padding);
void* dynamic_shared(const char* name, size_t alignment, size_t element,
                     const unsigned char* padding);
// Applies cudaFuncSetAttribute to a kernel. `most_here` becomes the most shared memory that
// any kernel of the library may have.
cudaError_t allow_shared(const void* kernel, int bytes, int& most_here, const char* file,
                         int line);
cudaError_t prefer_shared(int percent, const char* file, int line);
int shared_allowed(const void* kernel, int most_here);
static int most_shared_here = not_set;

inline Launch configure(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes = 0,
                        cudaStream_t stream = nullptr, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  return {kernel, grid, block, shared_bytes, stream, file, line, &most_shared_here};
}

// The address of a kernel. It is null if only the arguments decide which function is meant, as
// for a template or for overloads.
struct Here {};
template <class Kernel>
const void* address(Here, Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}
template <class Ask>
const void* address_if_any(Ask ask) {
  if constexpr (std::is_invocable_v<Ask, Here>) return ask(Here{});
  return nullptr;
}

template <class Body>
auto launch(Launch launch, const void* function, Body body) {
  launch.function = function;
  launch.shared_allowed = shared_allowed(function, most_shared_here);
  return [=](auto... arguments) {
    auto call = std::make_tuple(body, arguments...);  // copied, as on a GPU
    auto run = [](void* packed) {
      std::apply([](auto& kernel, auto&... copies) { kernel(copies...); },
                 *static_cast<decltype(call)*>(packed));
    };
    run_grid(launch, run, &call, sizeof call);
  };
}

template <class... Parameters, size_t... Number>
cudaError_t launch_packed(const Launch& to, void (*kernel)(Parameters...), void** arguments,
                          std::index_sequence<Number...>) {
  launch(to, reinterpret_cast<const void*>(kernel),
         kernel)(*static_cast<std::decay_t<Parameters>*>(arguments[Number])...);
  return cudaPeekAtLastError();
}

// cudaLaunchKernel(kernel, grid, block, arguments). Each argument is the address of a value.
template <class... Parameters>
cudaError_t launch_kernel(const char* name, void (*kernel)(Parameters...), dim3 grid,
                          dim3 block, void** arguments, size_t shared_bytes = 0,
                          cudaStream_t stream = nullptr, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  return launch_packed(configure(name, grid, block, shared_bytes, stream, file, line), kernel,
                       arguments, std::index_sequence_for<Parameters...>());
}

#if !defined(__has_builtin)
#define __has_builtin(name) 0
#endif

// A number for each byte of a T; zero means padding. Copying a struct reads its padding, which
// no thread writes. Null if T has no padding.
template <class T>
const unsigned char* padding() {
  if constexpr (std::is_class_v<T> && std::is_trivially_copyable_v<T> &&
                !std::has_unique_object_representations_v<T>) {
    alignas(T) static unsigned char used[sizeof(T)];
#if __has_builtin(__builtin_clear_padding)
    __builtin_memset(used, 0xff, sizeof used);
    __builtin_clear_padding(reinterpret_cast<std::remove_cv_t<T>*>(used));
#else
    // before Clang 20, any later byte may be padding
    __builtin_memset(used, 0xff, sizeof(T) == alignof(T) ? sizeof(T) : 1);
#endif
    return used;
  }
  return nullptr;
}

// `void(T)` carries a type with commas through a macro.
template <class>
struct argument;
template <class T>
struct argument<void(T)> {
  using type = T;
};

}  // namespace cuda_on_cpu

#define CUDA_KERNEL_ADDRESS(...)                                            \
  cuda_on_cpu::address_if_any(                                              \
      [=](auto here) -> decltype(cuda_on_cpu::address(here, __VA_ARGS__)) { \
        return cuda_on_cpu::address(here, __VA_ARGS__);                     \
      })

// The first thread of a block that gets here makes the variable. All threads get its address.
#define CUDA_SHARED_ALIGNED(alignment, T, name, dimensions)                                  \
  static char name##_identity;                                                               \
  T(&name)                                                                                   \
  dimensions = *static_cast<T(*) dimensions>(                                                \
      cuda_on_cpu::shared_variable(&name##_identity, #name, sizeof(T dimensions), alignment, \
                                   sizeof(T), cuda_on_cpu::padding<T>()))
#define CUDA_SHARED(T, name, dimensions) CUDA_SHARED_ALIGNED(alignof(T), T, name, dimensions)
#define CUDA_DYNAMIC_SHARED_ALIGNED(alignment, T, name) \
  T* name = static_cast<T*>(                            \
      cuda_on_cpu::dynamic_shared(#name, alignment, sizeof(T), cuda_on_cpu::padding<T>()))
#define CUDA_DYNAMIC_SHARED(T, name) CUDA_DYNAMIC_SHARED_ALIGNED(alignof(T), T, name)

// A kernel has ended when its launch returns. As on a GPU, these functions report a fault of
// the kernel, not a refused launch.
cudaError_t cudaDeviceSynchronize();

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value,
                                 const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
    return cuda_on_cpu::prefer_shared(value, file, line);
  const void* address = cuda_on_cpu::address({}, kernel);
  return cuda_on_cpu::allow_shared(address, value, cuda_on_cpu::most_shared_here, file, line);
}
