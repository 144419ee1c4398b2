// Functions through which checked mode watches a kernel. The learner's text is compiled with
// -fsanitize=thread. So the compiler calls a function before each access to memory that
// another thread could see. With -fsanitize-coverage=trace-pc it also calls a function for
// each stretch of straight code. Usually libtsan has these functions; here they are ours.
#pragma once
#include "watch.h"

#if CHECKED

#define HERE __builtin_return_address(0)

namespace cuda_on_cpu {
// Copying zero bytes touches no memory, wherever the pointers lead.
inline void watch_range(const void* where, size_t size, Access access, const void* code) {
  if (size) watch(where, size, access, code);
}
}  // namespace cuda_on_cpu

extern "C" {

#define DEFINE_HOOKS(bytes)                                                 \
  void __tsan_read##bytes(void* p) {                                        \
    cuda_on_cpu::watch_aligned(p, bytes, cuda_on_cpu::Access::read, HERE);  \
  }                                                                         \
  void __tsan_write##bytes(void* p) {                                       \
    cuda_on_cpu::watch_aligned(p, bytes, cuda_on_cpu::Access::write, HERE); \
  }                                                                         \
  void __tsan_unaligned_read##bytes(void* p) {                              \
    cuda_on_cpu::watch(p, bytes, cuda_on_cpu::Access::read, HERE);          \
  }                                                                         \
  void __tsan_unaligned_write##bytes(void* p) {                             \
    cuda_on_cpu::watch(p, bytes, cuda_on_cpu::Access::write, HERE);         \
  }                                                                         \
  void __tsan_volatile_read##bytes(void* p) {                               \
    cuda_on_cpu::watch_aligned(p, bytes, cuda_on_cpu::Access::read, HERE);  \
  }                                                                         \
  void __tsan_volatile_write##bytes(void* p) {                              \
    cuda_on_cpu::watch_aligned(p, bytes, cuda_on_cpu::Access::write, HERE); \
  }
DEFINE_HOOKS(1)
DEFINE_HOOKS(2)
DEFINE_HOOKS(4)
DEFINE_HOOKS(8)
DEFINE_HOOKS(16)

void __tsan_read_range(void* p, size_t bytes) {
  cuda_on_cpu::watch_range(p, bytes, cuda_on_cpu::Access::read, HERE);
}
void __tsan_write_range(void* p, size_t bytes) {
  cuda_on_cpu::watch_range(p, bytes, cuda_on_cpu::Access::write, HERE);
}
void* cuda_on_cpu_memcpy(void* to, const void* from, size_t bytes) {
  cuda_on_cpu::watch_range(from, bytes, cuda_on_cpu::Access::read, HERE);
  cuda_on_cpu::watch_range(to, bytes, cuda_on_cpu::Access::write, HERE);
  return memcpy(to, from, bytes);
}
void* cuda_on_cpu_memmove(void* to, const void* from, size_t bytes) {
  cuda_on_cpu::watch_range(from, bytes, cuda_on_cpu::Access::read, HERE);
  cuda_on_cpu::watch_range(to, bytes, cuda_on_cpu::Access::write, HERE);
  return memmove(to, from, bytes);
}
void* cuda_on_cpu_memset(void* to, int value, size_t bytes) {
  cuda_on_cpu::watch_range(to, bytes, cuda_on_cpu::Access::write, HERE);
  return memset(to, value, bytes);
}

// Clang uses these to copy a struct and to fill it with zeros. An access of 8 or 16 bytes
// counts as one to a CUDA vector.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  bool vector = bytes == 8 || bytes == 16;
  (vector ? cuda_on_cpu::watch_aligned : cuda_on_cpu::watch_range)(
      from, bytes, cuda_on_cpu::Access::read, HERE);
  (vector ? cuda_on_cpu::watch_aligned : cuda_on_cpu::watch_range)(
      to, bytes, cuda_on_cpu::Access::write, HERE);
  return memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  cuda_on_cpu::watch_range(to, bytes, cuda_on_cpu::Access::write, HERE);
  return memset(to, value, bytes);
}
#if !defined(__APPLE__)  // Clang before 15 calls these (cuda_builds.py)
void* __wrap_memcpy(void*, const void*, size_t) __attribute__((alias("__tsan_memcpy")));
void* __wrap_memset(void*, int, size_t) __attribute__((alias("__tsan_memset")));
#endif

// A function's static variable is initialised under a guard, which the compiler reads
// atomically. Such a variable belongs to the launcher, or is a constant.
unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int) {
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __sanitizer_cov_trace_pc() {
  using namespace cuda_on_cpu;
  if (!self || --self->steps >= 0) return;
  Report report("no-end");
  block->fail(report.add("steps", step_limit).code("pc", HERE));
}

}  // extern "C"

#endif
