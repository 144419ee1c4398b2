// A block of threads. Each thread is a fiber, and the threads take turns. A thread runs until
// it returns, or waits at a barrier or for its warp. Then the next thread runs.
#pragma once
#include <algorithm>
#include <vector>

#include "fiber.h"
#include "report.h"
#include "shared_memory.h"

// Kernels see these variables as constants. They are set before a thread runs.
extern "C" {
extern __attribute__((visibility("default"))) CUDA_ON_CPU_LOCAL uint3 threadIdx, blockIdx;
extern __attribute__((visibility("default"))) CUDA_ON_CPU_LOCAL uint3 blockDim, gridDim;
}

namespace cuda_on_cpu {

inline long long step_limit;  // Python sets it before each call

enum class State { ready, at_barrier, in_warp, returned };

struct Thread {
  uint3 index{};
  unsigned number, warp, lane;
  State state = State::ready;
  void* stack = nullptr;
  // Where the thread waits, and at which function.
  const char *what, *file;
  int line;
  // The thread's value for a meeting of its warp, and the place for the result (warp.h).
  const void* value;
  void* result;
  size_t bytes;
  int source;
#if CHECKED
  uint32_t clock = 1, seen[32] = {};  // the thread's time (clock.h)
  long long steps = step_limit;       // that the thread may still take
  long long waited = 0;               // that it has taken while it waited
  const void* table_reads[4] = {};    // the entries of the block table that it read last
#endif
};

// A fault that may be only a consequence of another one. For example, a thread reads an
// element without a value: perhaps the value would come, but a barrier is missing. The block
// runs on to find out, at most to its next barrier. The suspicion with the most weight counts.
struct Suspicion {
  enum Weight { none, unwritten, race_in_warp, look_before_swap, certain };
  Weight weight = none;
  std::string report;
  const void* cell = nullptr;  // the element's, and the thread that used it
  unsigned thread = 0;
};

struct Meeting;

class Block;
inline CUDA_ON_CPU_LOCAL Block* block = nullptr;  // the block of this processor thread
inline CUDA_ON_CPU_LOCAL Thread* self = nullptr;  // the thread that runs; null in the launcher

void enter_thread();

class Block {
 public:
  void begin_launch(const Launch& launch, void (*body)(void*), void* arguments,
                    size_t argument_bytes) {
    launch_ = &launch, body_ = body, arguments_ = arguments, argument_bytes_ = argument_bytes;
    threads.resize(size_t(launch.block.x) * launch.block.y * launch.block.z);
    stacks_.reserve(threads.size() + 1);
    turns_.resize(threads.size());
    shared.begin_launch(launch.shared_bytes, launch.shared_allowed);
  }
  void run(uint3 index, size_t number, unsigned long long seed);
  void call_kernel() { body_(arguments_); }

  // Gives the turn to the next thread that can run. Returns when it is this thread's turn
  // again.
  void wait(State state) {
    Thread& mine = *self;
    mine.state = state;
#if CHECKED
    // So a loop that waits is soon called endless.
    long long steps = state == State::at_barrier ? 1000 : 100;
    mine.steps -= steps, mine.waited += steps;
#endif
    hand_over(&mine.stack);
  }
  // Ends the block. But if another fault is suspected, it may be the cause: then only this
  // thread ends.
  [[noreturn]] void fail(Report& report, cudaError_t code = cudaErrorLaunchFailure) {
    if (!suspicion.weight) stop(complete(report), code);
    if (self != &threads[turns_[turn_]]) stop(suspicion.report);  // another thread's fault
    for (;;) wait(State::returned);
  }
  [[noreturn]] void fail(Report&& report) { fail(report); }
  // Ends the block: none of its threads runs on.
  [[noreturn]] void stop(const std::string& report,
                         cudaError_t code = cudaErrorLaunchFailure) {
    outcome.record(report, code, number_);
    failed_ = true;
    turn_ = turns_.size();
    for (;;) wait(State::returned);
  }
  void suspect(Suspicion::Weight weight, Report& report) {
    suspicion = {weight, complete(report)};
#if CHECKED
    // A wrong value may cause an endless loop from here on.
    for (Thread& thread : threads) thread.steps = std::min(thread.steps, 1'000'000LL);
#endif
  }
  std::string complete(Report& report) const {
    if (self) report.index("thread", self->index).add("linear", self->number);
    return report.add("kernel", launch_->kernel).index("block", index_).text();
  }

  const Launch& launch() const { return *launch_; }
  bool is_argument(const char* address) const {
    return size_t(address - static_cast<char*>(arguments_)) < argument_bytes_;
  }
  char* own_stack() const { return stacks_.stack(self->number); }
  char* spare_stack() const { return stacks_.stack(threads.size()); }
  unsigned count(State state) const {
    return std::count_if(threads.begin(), threads.end(),
                         [=](const Thread& thread) { return thread.state == state; });
  }

  std::vector<Thread> threads;
  std::vector<unsigned> present;  // the lanes of each warp that exist and have not returned
  std::vector<Meeting> meetings;  // of warps in which lanes wait for another lane
  SharedMemory shared;
  Suspicion suspicion;
  int votes[2] = {}, vote_round = 0;  // __syncthreads_count

 private:
  void hand_over(void** stack);
  void start_threads();
  bool take_turns();
  void open_barrier();
  void report_deadlock();
  void fail_waiting(Report& report);
  void conclude(const std::string& report);

  const Launch* launch_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* arguments_ = nullptr;
  size_t argument_bytes_ = 0;
  uint3 index_{};
  size_t number_ = 0;
  bool failed_ = false;
  unsigned long long random_ = 0;
  void* scheduler_ = nullptr;
  std::vector<unsigned> turns_;  // the threads, in the order of their turns
  size_t turn_ = 0;
  Stacks stacks_;
};

}  // namespace cuda_on_cpu
