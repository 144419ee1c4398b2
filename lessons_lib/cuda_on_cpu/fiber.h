// A fiber has its own stack. It can stop in the middle of a function and continue there later.
// Each CUDA thread is a fiber.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

// cuda_on_cpu_switch(save, load) puts the registers that a function must keep on this stack
// and stores the stack pointer in *save. Then it continues where the stack at `load` was left.
extern "C" void cuda_on_cpu_switch(void** save, void* load);

#if defined(__APPLE__)
#define CUDA_ON_CPU_SYMBOL "_cuda_on_cpu_switch"
#else
#define CUDA_ON_CPU_SYMBOL "cuda_on_cpu_switch"
#endif

#if defined(__x86_64__)
constexpr int saved_words = 6;
asm(".text\n.globl " CUDA_ON_CPU_SYMBOL "\n" CUDA_ON_CPU_SYMBOL
    ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
#elif defined(__aarch64__)
constexpr int saved_words = 20;
asm(".text\n.globl " CUDA_ON_CPU_SYMBOL "\n.p2align 2\n" CUDA_ON_CPU_SYMBOL
    ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n");
#else
#error "Kernels run on the CPU of x86-64 and arm64 machines; write the switch of others here."
#endif

namespace cuda_on_cpu {

constexpr size_t stack_bytes = 128 * 1024;
constexpr size_t guard_bytes = 48 * 1024;  // at the lower end; larger than any frame

// Makes a stack that looks as if the fiber had stopped just before `entry`. Stacks begin at
// different distances from their ends (`number`). Otherwise the processor's cache, which looks
// at the lower bits of an address, could hold only a few of them.
inline void* prepared_stack(char* lowest, unsigned number, void (*entry)()) {
  void** top = reinterpret_cast<void**>(lowest + stack_bytes - number % 32 * 448);
  *--top = nullptr;
#if defined(__x86_64__)
  *--top = reinterpret_cast<void*>(entry);  // `ret` jumps here
  for (int word = 0; word < saved_words; ++word) *--top = nullptr;
#else
  --top;  // the stack pointer must be a multiple of 16
  top -= saved_words;
  for (int word = 0; word < saved_words; ++word) top[word] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30: `ret` jumps here
#endif
  return top;
}

#if defined(MAP_NORESERVE)
constexpr int unreserved = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;
#else
constexpr int unreserved = MAP_PRIVATE | MAP_ANON;
#endif

// Memory from the system. It is zero, and a page is provided when it is first touched.
inline char* map_memory(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* memory = mmap(nullptr, bytes, protection, unreserved, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

// Stacks for the threads of a block. Below each stack are pages that must not be touched.
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() { release(); }

  void reserve(size_t count) {
    if (count <= count_) return;
    release();
    memory_ = map_memory(count * stack_bytes);
    count_ = count;
    for (size_t i = 0; i < count; ++i)
      mprotect(memory_ + i * stack_bytes, guard_bytes, PROT_NONE);
  }

  char* stack(size_t i) const { return memory_ + i * stack_bytes; }

 private:
  void release() {
    if (memory_) munmap(memory_, count_ * stack_bytes);
    memory_ = nullptr, count_ = 0;
  }

  char* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace cuda_on_cpu
