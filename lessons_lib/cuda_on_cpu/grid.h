// The launch of a grid. Its blocks know nothing of each other. Fast mode runs them on all
// processors. Checked mode runs them one by one, so that it finds the same faults on every
// run.
#pragma once
#include <atomic>
#include <memory>
#include <thread>

#include "launches.h"
#include "scheduler.h"
#include "traps.h"
#include "watch.h"

namespace cuda_on_cpu {

// Each stack has two mappings of memory, and Linux gives a process 65530 mappings.
constexpr size_t most_stacks = 8192;
inline int os_threads;  // Python sets both before each call
inline unsigned long long seed;

// Why a GPU would refuse this launch, or null. `code` is then CUDA's error.
inline const char* refusal(const Launch& launch, cudaError_t& code) {
  const dim3 grid = launch.grid, size = launch.block;
  code = cudaErrorInvalidConfiguration;
  if (size_t(size.x) * size.y * size.z == 0) return "a block of no threads";
  if (size_t(size.x) * size.y * size.z > 1024) return "more than 1024 threads in a block";
  if (size.z > 64) return "more than 64 threads in the block's z direction";
  if (size_t(grid.x) * grid.y * grid.z == 0) return "a grid of no blocks";
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    return "more than 2147483647, 65535 or 65535 blocks in x, y or z";
  code = cudaErrorInvalidValue;
  if (launch.shared_bytes > shared_bytes_at_most)
    return "more than 227 KiB of dynamic shared memory";
  if (launch.shared_allowed == not_set && launch.shared_bytes > shared_bytes_by_default)
    return "more than 48 KiB of dynamic shared memory, which "
           "cudaFuncSetAttribute must allow this kernel first";
  if (launch.shared_allowed != not_set && launch.shared_bytes > size_t(launch.shared_allowed))
    return "more dynamic shared memory than cudaFuncSetAttribute allowed this kernel";
  if (launches.fails(code)) return "it was made to fail, to see what the launcher makes of it";
  return nullptr;
}

// Blocks that are used again, with their stacks.
class Pool {
 public:
  std::unique_ptr<Block> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return std::make_unique<Block>();
    std::unique_ptr<Block> taken = std::move(idle_.back());
    idle_.pop_back();
    return taken;
  }
  void give_back(std::unique_ptr<Block> block) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
};
inline Pool pool;

inline void run_blocks(const Launch& launch, void (*body)(void*), void* arguments,
                       size_t bytes, std::atomic<size_t>& next) {
  const dim3 grid = launch.grid;
  const size_t count = size_t(grid.x) * grid.y * grid.z;
  std::unique_ptr<Block> mine = pool.take();
  block = mine.get();
  block->begin_launch(launch, body, arguments, bytes);
  TrapStack trap_stack(block->spare_stack());
  blockDim = {launch.block.x, launch.block.y, launch.block.z};
  gridDim = {grid.x, grid.y, grid.z};
  for (size_t i; (i = next++) < count && !outcome.failed_before(i);)
    block->run(
        {unsigned(i % grid.x), unsigned(i / grid.x % grid.y), unsigned(i / grid.x / grid.y)},
        i, seed);
  block = nullptr;
  pool.give_back(std::move(mine));
}

void run_grid(const Launch& launch, void (*body)(void*), void* arguments, size_t bytes) {
  if (outcome.fault() != cudaSuccess) return;
  if (self) {
    Report report("bad-launch");
    block->fail(report.place("", launch.file, launch.line)
                    .add("text", "a kernel cannot launch kernels here"));
  }
  outcome.begin_launch();
  launches.add(launch);
  cudaError_t code;
  if (const char* reason = refusal(launch, code)) {
    Report report("bad-launch");
    report.add("kernel", launch.kernel)
        .place("", launch.file, launch.line)
        .add("text", reason);
    report.add("grid", launch.grid.x, launch.grid.y, launch.grid.z)
        .add("threads", launch.block.x, launch.block.y, launch.block.z);
    report.add("shared_bytes", launch.shared_bytes);
    return outcome.refuse_launch(report.text(), code);
  }
#if CHECKED
  Dl_info library;
  code_base =
      dladdr(launch.library, &library) ? static_cast<const char*>(library.dli_fbase) : nullptr;
  epoch.begin_launch();
  ++tensors.launches;
#endif
  TrapHandlers trap_handlers;
  std::atomic<size_t> next{0};
  auto work = [&] { run_blocks(launch, body, arguments, bytes, next); };
  const size_t blocks = size_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  const size_t threads = size_t(launch.block.x) * launch.block.y * launch.block.z;
  std::vector<std::thread> helpers;
  if (!CHECKED)
    while (helpers.size() + 1 < std::min({size_t(os_threads), blocks, most_stacks / threads}))
      helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (outcome.fault() != cudaSuccess) launches.forget(launch.function);  // a GPU stops here
  fflush(stdout);  // what kernels printed
}

inline cudaError_t refuse_attribute(int bytes, const char* why, const char* file, int line) {
  Report report("bad-launch");
  report.place("", file, line).add("shared_bytes", std::max(bytes, 0)).add("text", why);
  outcome.refuse(report.text(), cudaErrorInvalidValue);
  return cudaErrorInvalidValue;
}

// cudaFuncSetAttribute, for a kernel's dynamic shared memory.
cudaError_t allow_shared(const void* kernel, int bytes, int& most_here, const char* file,
                         int line) {
  if (bytes < 0)
    return refuse_attribute(bytes, "cudaFuncSetAttribute takes no negative number of bytes",
                            file, line);
  if (size_t(bytes) > shared_bytes_at_most)
    return refuse_attribute(
        bytes,
        "cudaFuncSetAttribute cannot allow more dynamic shared memory than a block can "
        "have, 227 KiB",
        file, line);
  launches.allow(kernel, bytes);
  most_here = std::max(most_here, bytes);
  return cudaSuccess;
}

// How a multiprocessor divides its memory. A kernel cannot notice it here.
cudaError_t prefer_shared(int percent, const char* file, int line) {
  if (percent >= -1 && percent <= 100) return cudaSuccess;
  return refuse_attribute(0, "a carveout is 0 to 100 percent, or -1 for the default", file,
                          line);
}

int shared_allowed(const void* kernel, int most_here) {
  return kernel ? launches.allowed(kernel) : most_here;
}

// Traces a shared array if Python named it, as in `__shared__ row`.
static void* traced(void* memory, const char* name) {
#if CHECKED
  region_at(static_cast<char*>(memory))->traced =
      tensors.traced(std::string("__shared__ ") + name);
#endif
  return memory;
}

void* shared_variable(const void* identity, const char* name, size_t bytes, size_t alignment,
                      size_t element, const unsigned char* padding) {
  const char* why = nullptr;
  void* memory =
      block->shared.variable(identity, name, bytes, alignment, element, padding, why);
  if (memory) return traced(memory, name);
  Report report("bad-launch");
  block->fail(report.add("text", why).add("name", name), cudaErrorInvalidValue);
}

void* dynamic_shared(const char* name, size_t alignment, size_t element,
                     const unsigned char* padding) {
  const char* why = nullptr;
  void* memory = block->shared.dynamic(name, alignment, element, padding, why);
  if (!why) return traced(memory, name);
  Report report("bad-launch");
  block->fail(report.add("text", why).add("name", name), cudaErrorInvalidValue);
}

}  // namespace cuda_on_cpu
