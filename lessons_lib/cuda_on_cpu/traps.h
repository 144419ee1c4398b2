// Turns a processor's exception in a kernel into a report: an integer division by zero, an
// access where there is no memory, a full stack, and in checked mode a loop that does nothing.
// The system tells of these by signals. While a grid runs, our handlers replace the old ones.
#pragma once
#include <pthread.h>
#include <sys/time.h>

#include <csignal>
#include <ctime>
#include <cstdint>

#include "block.h"

#if defined(__APPLE__) && defined(__aarch64__)
#define CUDA_ON_CPU_REGISTERS(context, mac, x86, arm) (context)->uc_mcontext->__ss.mac
#elif defined(__x86_64__)
#define CUDA_ON_CPU_REGISTERS(context, mac, x86, arm) (context)->uc_mcontext.gregs[x86]
#else
#define CUDA_ON_CPU_REGISTERS(context, mac, x86, arm) (context)->uc_mcontext.arm
#endif
#define CUDA_ON_CPU_PC(context) CUDA_ON_CPU_REGISTERS(context, __pc, REG_RIP, pc)
#define CUDA_ON_CPU_SP(context) CUDA_ON_CPU_REGISTERS(context, __sp, REG_RSP, sp)

namespace cuda_on_cpu {

struct Trap {
  int signal;
  bool address_known;
  const char *code, *address, *stack;
};
inline CUDA_ON_CPU_LOCAL Trap trap{};
inline thread_local bool runs_blocks = false;  // of this processor thread

// The address after the last instruction of the kernel, which may have called another
// function.
inline const void* last_in_kernel() {
  Dl_info own, found;
  if (!dladdr(block->launch().library, &own)) return nullptr;
  auto in_kernel = [&](const void* code) {
    return dladdr(code, &found) && found.dli_fbase == own.dli_fbase;
  };
  if (in_kernel(trap.code)) return trap.code + 1;
  char* end = block->own_stack() + stack_bytes;
  if (trap.stack < block->own_stack() || trap.stack >= end) return nullptr;
  const char* first = std::max<const char*>(trap.stack, block->own_stack() + guard_bytes);
  for (auto word = reinterpret_cast<void* const*>(first); word < reinterpret_cast<void**>(end);
       ++word)
    if (in_kernel(*word)) return *word;
  return nullptr;
}

// If the compiler finds that a loop has no effect, it may leave a jump to itself, which calls
// no hook (hooks.h). So a timer checks regularly whether the kernel has run for half a second
// without a step.
inline bool stands_still() {
#if CHECKED
  static const Thread* thread = nullptr;
  static long long steps = 0;
  static double since = 0;
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  double now = double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
  if (self == thread && self->steps == steps) return now - since > 0.5;
  thread = self, steps = self->steps, since = now;
#endif
  return false;
}

// A thread continues here after a signal, at the start of its stack: the stack's content is
// not needed any more.
[[noreturn]] inline void report_trap() {
  bool full = size_t(trap.address - block->own_stack()) < guard_bytes;
  if (trap.signal == SIGVTALRM) block->fail(Report("no-end").code("pc", last_in_kernel()));
  Report report(trap.signal == SIGFPE ? "division-by-zero"
                : full                ? "stack-overflow"
                                      : "no-address");
  if (trap.address_known) report.add("address", static_cast<const void*>(trap.address));
  block->fail(report.code("pc", last_in_kernel()));
}

struct TrapHandlers {
  static constexpr int count = 4, signals[count] = {SIGFPE, SIGSEGV, SIGBUS, SIGVTALRM};
  static inline struct sigaction before[count];
  static inline pthread_t launching;
  itimerval clock_before{};

  TrapHandlers() {
    struct sigaction ours{};
    ours.sa_sigaction = handle, ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < count; ++i) sigaction(signals[i], &ours, &before[i]);
    launching = pthread_self();
    const itimerval often = {{0, 300'000}, {0, 300'000}};
    if (CHECKED) setitimer(ITIMER_VIRTUAL, &often, &clock_before);
  }
  ~TrapHandlers() {
    if (CHECKED) setitimer(ITIMER_VIRTUAL, &clock_before, nullptr);
    for (int i = 0; i < count; ++i) sigaction(signals[i], &before[i], nullptr);
  }

  static void handle(int signal, siginfo_t* info, void* context) {
    if (signal == SIGVTALRM) {
      // The signal reached another thread.
      if (!runs_blocks) return void(pthread_kill(launching, signal));
      if (!self || !stands_still()) return;
    }
    if (!runs_blocks || !self) {  // not the kernel's fault: the old handler gets it
      for (int i = 0; i < count; ++i)
        if (signals[i] == signal) sigaction(signal, &before[i], nullptr);
      return;
    }
    auto* at = static_cast<ucontext_t*>(context);
    bool known = true;
#if defined(SI_KERNEL)
    known = info->si_code != SI_KERNEL;  // the address is misaligned or impossible
#endif
    trap = {signal, known, reinterpret_cast<const char*>(CUDA_ON_CPU_PC(at)),
            static_cast<const char*>(info->si_addr),
            reinterpret_cast<const char*>(CUDA_ON_CPU_SP(at))};
    CUDA_ON_CPU_PC(at) = reinterpret_cast<uintptr_t>(&report_trap);
    CUDA_ON_CPU_SP(at) =
        reinterpret_cast<uintptr_t>(block->own_stack() + stack_bytes - 8 * (saved_words == 6));
  }
};

// A second stack for the handler on this processor thread, because the first may be full.
class TrapStack {
 public:
  explicit TrapStack(char* lowest) {
    stack_t ours{};
    ours.ss_sp = lowest + guard_bytes, ours.ss_size = stack_bytes - guard_bytes;
    sigaltstack(&ours, &before_);
    runs_blocks = true;
  }
  ~TrapStack() {
    runs_blocks = false;
    sigaltstack(&before_, nullptr);
  }

 private:
  stack_t before_{};
};

}  // namespace cuda_on_cpu
