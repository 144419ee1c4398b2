// A warp: 32 threads that can exchange values without shared memory. The last lane that
// arrives does the exchange for all.
#pragma once
#include "block.h"
#include "clock.h"
#include "counts.h"

namespace cuda_on_cpu {

// Lanes of one warp that have reached the same line with the same mask. Lanes may also meet in
// separate groups.
enum class Meet { shuffle, ballot, gather, barrier };
struct Meeting {
  Meet kind;
  unsigned warp, mask, arrived;
  const char *what, *file;
  int line;
};

inline unsigned bit(unsigned lane) { return 1u << lane; }
inline Thread& lane_of(unsigned warp, unsigned lane) {
  return block->threads[warp * 32 + lane];
}

inline Report lane_report(const char* what, unsigned mask, const char* file, int line) {
  Report report("absent-lane");
  char hexadecimal[16];
  snprintf(hexadecimal, sizeof hexadecimal, "%08x", mask);
  report.add("what", what)
      .add("mask", hexadecimal)
      .add("lane", self->lane)
      .place("", file, line);
  return report;
}

// The value of the lane that `thread` asks for. A lane that has returned gives nothing.
inline const void* value_for(Thread& thread, const Meeting& meeting) {
  if (!(meeting.arrived & bit(thread.source))) {
    self = &thread;
    Report report = lane_report(meeting.what, meeting.mask, meeting.file, meeting.line);
    block->fail(report.add("text", "source lane").add("source", thread.source));
  }
  return lane_of(meeting.warp, thread.source).value;
}

inline void exchange(const Meeting& meeting) {
  auto each = [&](auto&& what) {
    for (unsigned lanes = meeting.arrived; lanes; lanes &= lanes - 1)
      what(lane_of(meeting.warp, __builtin_ctz(lanes)));
  };
  if (meeting.kind == Meet::shuffle) {
    each([&](Thread& thread) {
      const void* value = value_for(thread, meeting);
      // The usual case, in one instruction.
      if (thread.bytes == 4) memcpy(thread.result, value, 4);
      else memcpy(thread.result, value, thread.bytes);
    });
  } else if (meeting.kind == Meet::ballot) {
    unsigned votes = 0;
    each([&](Thread& thread) {
      votes |= *static_cast<const int*>(thread.value) ? bit(thread.lane) : 0;
    });
    each([&](Thread& thread) { memcpy(thread.result, &votes, sizeof votes); });
  } else if (meeting.kind == Meet::gather) {
    each([&](Thread& reader) {
      each([&](Thread& thread) {
        memcpy(static_cast<char*>(reader.result) + thread.lane * 8, thread.value, 8);
      });
      reader.source = int(meeting.arrived);
    });
  }
#if CHECKED
  ++counts.warp_meetings;
  if (meeting.kind == Meet::barrier)
    synchronise_lanes(block->threads, meeting.warp, meeting.arrived);
#endif
  each([](Thread& thread) { thread.state = State::ready; });
}

// Ends the meetings that are complete: all lanes of the mask have arrived or returned.
inline void close_meetings(unsigned warp) {
  for (size_t i = 0; i < block->meetings.size();) {
    Meeting& meeting = block->meetings[i];
    if (meeting.warp != warp || (meeting.mask & block->present[warp] & ~meeting.arrived)) {
      ++i;
      continue;
    }
    exchange(meeting);
    block->meetings.erase(block->meetings.begin() + i);
  }
}

[[noreturn]] inline void report_stranger(unsigned mask, const char* what, const char* file,
                                         int line) {
  Report report = lane_report(what, mask, file, line);
  block->fail(report.add("text", "caller is not in the mask"));
}

// Waits for the other lanes of `mask`.
// value: this lane's value.
// result: the place for the value of lane `source`.
// source: -1 for a warp's barrier and for a vote.
inline void meet(Meet kind, unsigned mask, const void* value, void* result, size_t bytes,
                 int source, const char* what, const char* file, int line) {
  if (!(mask & bit(self->lane))) report_stranger(mask, what, file, line);
  self->value = value, self->result = result, self->bytes = bytes, self->source = source;
  self->what = what, self->file = file, self->line = line;
  Meeting* meeting = nullptr;
  for (Meeting& open : block->meetings)
    if (open.warp == self->warp && open.mask == mask && open.line == line && open.kind == kind)
      meeting = &open;
  if (!meeting) {
    block->meetings.push_back({kind, self->warp, mask, 0, what, file, line});
    meeting = &block->meetings.back();
  }
  meeting->arrived |= bit(self->lane);
  self->state = State::in_warp;
  if (!(mask & block->present[self->warp] & ~meeting->arrived)) close_meetings(self->warp);
  if (self->state == State::in_warp) block->wait(State::in_warp);
}

// The lane that a shuffle reads, as CUDA defines it for each kind. If it is outside the group
// of `width` lanes, the caller reads its own value. A GPU's instruction has five bits for the
// distance.
inline int source_lane(Shuffle kind, int lane, int distance, int width) {
  int first = lane & ~(width - 1);
  distance &= 31;
  switch (kind) {
    case Shuffle::index:
      return first + (distance & (width - 1));
    case Shuffle::up:
      return lane - distance < first ? lane : lane - distance;
    case Shuffle::down:
      return lane + distance >= first + width ? lane : lane + distance;
    default:
      return (lane ^ distance) >= first + width ? lane : lane ^ distance;
  }
}

void shuffle(Shuffle kind, unsigned mask, const void* value, void* result, size_t bytes,
             int distance, int width, const char* what, const char* file, int line) {
  meet(Meet::shuffle, mask, value, result, bytes,
       source_lane(kind, self->lane, distance, width), what, file, line);
}

void warp_barrier(unsigned mask, const char* what, const char* file, int line) {
  meet(Meet::barrier, mask, nullptr, nullptr, 0, -1, what, file, line);
}

unsigned ballot(unsigned mask, int predicate, const char* what, const char* file, int line) {
  unsigned votes = 0;
  meet(Meet::ballot, mask, &predicate, &votes, sizeof votes, -1, what, file, line);
  return votes;
}

}  // namespace cuda_on_cpu

unsigned cuda_on_cpu::gather(unsigned mask, unsigned long long value,
                             unsigned long long (&values)[32], const char* what,
                             const char* file, int line) {
  meet(Meet::gather, mask, &value, values, sizeof value, -1, what, file, line);
  return unsigned(self->source);
}

// Which lanes run together is left to chance. CUDA promises only that the caller is one of
// them.
unsigned __activemask() { return cuda_on_cpu::bit(cuda_on_cpu::self->lane); }
