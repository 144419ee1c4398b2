// The runtime that kernels on the CPU link to, compiled with CHECKED=0 and with CHECKED=1.
// Read README.md first.
#define CUDA_ON_CPU_RUNTIME
#define CUDA_ON_CPU_CHECKED CHECKED
#pragma GCC visibility push(default)
#include "intrinsics.h"
#pragma GCC visibility pop

// The libraries' headers come first. The code after them is hidden from other libraries, which
// also makes it a little quicker.
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#pragma GCC visibility push(hidden)
#include "fiber.h"
#include "report.h"
#include "region.h"
#include "shared_memory.h"
#include "block.h"
#include "clock.h"
#include "counts.h"
#include "traps.h"
#include "warp.h"
#include "scheduler.h"
#include "tensors.h"
#include "allocations.h"
#include "watch.h"
#include "memory_calls.h"
#include "atomics.h"
#include "grid.h"
#pragma GCC visibility pop
#include "hooks.h"

extern "C" {
CUDA_ON_CPU_LOCAL uint3 threadIdx, blockIdx, blockDim, gridDim;
}

cudaError_t cudaGetLastError() { return cuda_on_cpu::outcome.last_error(true); }
cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::outcome.last_error(false); }
cudaError_t cudaDeviceSynchronize() {
  cuda_on_cpu::epoch_synchronise();
  return cuda_on_cpu::outcome.fault();
}
#define CUDA_ON_CPU_NAME(name, number, words) \
  if (error == name) return #name;
#define CUDA_ON_CPU_WORDS(name, number, words) \
  if (error == name) return words;
const char* cudaGetErrorName(cudaError_t error) {
  CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_NAME)
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_WORDS)
  return "unrecognized error code";
}

// Functions for Python (lessons_lib/cuda/library.py).
extern "C" {

void cuda_on_cpu_options(int seed, int os_threads, long long step_limit) {
  cuda_on_cpu::seed = seed, cuda_on_cpu::os_threads = os_threads,
  cuda_on_cpu::step_limit = step_limit;
}
void cuda_on_cpu_clear() { cuda_on_cpu::outcome.clear(); }
void cuda_on_cpu_begin_call(int failing_launch) {
  cuda_on_cpu::launches.begin_call(failing_launch);
}
size_t cuda_on_cpu_launches(RecordedLaunch* to, size_t count) {
  auto& launches = cuda_on_cpu::launches.list;
  std::copy_n(launches.begin(), std::min(count, launches.size()), to);
  return launches.size();
}
const char* cuda_on_cpu_error_text(int code) { return cudaGetErrorString(cudaError_t(code)); }
int cuda_on_cpu_last_error() { return cuda_on_cpu::outcome.error(); }
const char* cuda_on_cpu_report(int returned) {
  return cuda_on_cpu::outcome.report(returned).c_str();
}

#if CHECKED
// kind: 0 input, 1 updated, 2 output; plus 8 for int32. Returns null if there is no room.
void* cuda_on_cpu_tensor(const char* name, void* data, size_t bytes, int element_size,
                         int kind) {
  const cuda_on_cpu::Kind kinds[] = {cuda_on_cpu::Kind::input, cuda_on_cpu::Kind::updated,
                                     cuda_on_cpu::Kind::output};
  return cuda_on_cpu::tensors.add(name, data, bytes, element_size, kinds[kind % 8], kind >= 8);
}
void cuda_on_cpu_finish() {
  if (cuda_on_cpu::outcome.error() == cudaSuccess) cuda_on_cpu::tensors.look_for_unwritten();
}
void cuda_on_cpu_release(int copy_back) { cuda_on_cpu::tensors.release(copy_back); }
void cuda_on_cpu_trace(const char* names) { cuda_on_cpu::tensors.trace(names); }
size_t cuda_on_cpu_traced(TracedAccess* to, size_t count) {
  auto& accesses = cuda_on_cpu::tensors.accesses;
  std::copy_n(accesses.begin(), std::min(count, accesses.size()), to);
  return accesses.size();
}
void cuda_on_cpu_count(const char* names) {
  cuda_on_cpu::tensors.count(names), cuda_on_cpu::counts = {};
}
void cuda_on_cpu_counted(CudaOnCpuCounts* to) { *to = cuda_on_cpu::counts; }
#endif

}  // extern "C"
