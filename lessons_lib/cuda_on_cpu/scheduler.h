// Threads of a block take turns here. If none can run on, a barrier opens or there is a fault.
#pragma once
#include <chrono>

#include "warp.h"

namespace cuda_on_cpu {

inline void enter_thread() {
  block->call_kernel();
#if CHECKED
  counts.steps += step_limit - self->steps - self->waited;
#endif
  block->present[self->warp] &= ~bit(self->lane);
  if (!block->meetings.empty()) close_meetings(self->warp);
  block->wait(State::returned);
}

inline void Block::start_threads() {
  shared.begin_block();
  meetings.clear();
  present.assign((threads.size() + 31) / 32, 0);
  votes[0] = votes[1] = vote_round = 0;
  const dim3 size = launch_->block;
  for (unsigned i = 0; i < threads.size(); ++i) {
    Thread& thread = threads[i];
    thread = Thread();
    turns_[i] = i;
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.number = i, thread.warp = i / 32, thread.lane = i % 32;
    present[thread.warp] |= bit(thread.lane);
    thread.stack = prepared_stack(stacks_.stack(i), i, enter_thread);
  }
}

inline void Block::run(uint3 index, size_t number, unsigned long long seed) {
  index_ = index, number_ = number, failed_ = false;
  random_ = seed ? seed * 0x9e3779b97f4a7c15ull + number : 0;
  blockIdx = index;
#if CHECKED
  epoch.begin_block();
  loads.begin_block(threads.size());
#endif
  start_threads();
  suspicion = {};
  while (take_turns()) open_barrier();
  if (suspicion.weight) conclude(suspicion.report);
}

// Switches to the next thread in the order that can run. After the last one, switches back to
// `take_turns`.
inline void Block::hand_over(void** stack) {
  while (++turn_ < turns_.size()) {
    Thread& next = threads[turns_[turn_]];
    if (next.state != State::ready) continue;
    self = &next;
    threadIdx = next.index;
    return cuda_on_cpu_switch(stack, next.stack);
  }
  self = nullptr;
  cuda_on_cpu_switch(stack, scheduler_);
}

// Lets threads run until all of them wait or have returned. Returns whether the block runs on.
inline bool Block::take_turns() {
  while (count(State::ready)) {
    if (random_)  // another order shows code that works only by luck
      for (size_t i = turns_.size() - 1; i > 0; --i) {
        random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(turns_[i], turns_[(random_ >> 33) % (i + 1)]);
      }
    turn_ = -1;
    hand_over(&scheduler_);
    if (failed_) return false;
  }
  return count(State::returned) < threads.size();
}

// No thread can run. Either all wait at one barrier, which opens, or there is a fault.
inline void Block::open_barrier() {
  if (suspicion.weight) return conclude(suspicion.report);
  Thread* first = nullptr;
  for (Thread& thread : threads) {
    if (thread.state == State::in_warp) return report_deadlock();
    if (thread.state != State::at_barrier) continue;
    if (!first) first = &thread;
    bool same = thread.line == first->line && !strcmp(thread.file, first->file);
    if (same) continue;
    Report report("divergent-barrier");
    report.add("what", first->what).place("", first->file, first->line);
    report.add("other_what", thread.what).place("other_", thread.file, thread.line);
    report.index("thread", first->index).add("linear", first->number);
    report.index("other_thread", thread.index).add("other_linear", thread.number);
    return fail_waiting(report);
  }
  if (unsigned returned = count(State::returned)) {
    Report report("divergent-barrier");
    report.add("what", first->what)
        .place("", first->file, first->line)
        .add("returned", returned)
        .add("waiting", threads.size() - returned);
    report.index("thread", first->index).add("linear", first->number);
    Thread& gone = *std::find_if(threads.begin(), threads.end(), [](Thread& thread) {
      return thread.state == State::returned;
    });
    report.index("other_thread", gone.index).add("other_linear", gone.number);
    return fail_waiting(report);
  }
  for (Thread& thread : threads) thread.state = State::ready;
  vote_round ^= 1, votes[vote_round] = 0;
#if CHECKED
  ++epoch.now;
  ++counts.barriers;
#endif
}

// Lanes wait for other lanes, which are elsewhere and cannot run either.
inline void Block::report_deadlock() {
  Meeting& meeting = *std::min_element(
      meetings.begin(), meetings.end(), [](const Meeting& a, const Meeting& b) {
        return std::pair(a.warp, a.line) < std::pair(b.warp, b.line);  // in a fixed order
      });
  unsigned missing = meeting.mask & block->present[meeting.warp] & ~meeting.arrived;
  Thread& waits = lane_of(meeting.warp, __builtin_ctz(meeting.arrived));
  Thread& absent = lane_of(meeting.warp, __builtin_ctz(missing));
  self = &waits;
  Report report = lane_report(meeting.what, meeting.mask, meeting.file, meeting.line);
  self = nullptr;
  report.add("text", "absent")
      .add("lanes_missing", missing)
      .index("thread", waits.index)
      .add("linear", waits.number);
  report.index("other_thread", absent.index).add("other_linear", absent.number);
  report.add("other_what", absent.what).place("other_", absent.file, absent.line);
  fail_waiting(report);
}

inline void Block::fail_waiting(Report& report) { conclude(complete(report)); }

// Ends the block while no thread runs.
inline void Block::conclude(const std::string& report) {
  outcome.record(report, cudaErrorLaunchFailure, number_);
  failed_ = true;
  for (Thread& thread : threads) thread.state = State::returned;
}

void block_barrier(const char* what, const char* file, int line) {
  self->what = what, self->file = file, self->line = line;
  block->wait(State::at_barrier);
}

int block_count(int predicate, const char* what, const char* file, int line) {
  int& votes = block->votes[block->vote_round];
  votes += predicate != 0;
  block_barrier(what, file, line);
  return votes;
}

void assertion_failed(const char* expression, const char* file, int line) {
  if (!self) fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression), abort();
  Report report("assertion");
  block->fail(report.place("", file, line).add("text", expression));
}

void trap_called(const char* file, int line) {
  if (!self) abort();
  Report report("trap");
  block->fail(report.place("", file, line));
}
}  // namespace cuda_on_cpu

void __nanosleep(unsigned) { cuda_on_cpu::block->wait(cuda_on_cpu::State::ready); }
long long clock64() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
