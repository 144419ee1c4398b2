// The reads, the writes or the atomic operations of one element. A record keeps enough of them
// that a report is true: the named thread did what the report says, and nothing orders it. It
// keeps:
// - Threads of several warps, since the last barrier: two threads, from different warps. Every
//   later thread clashes with one of these.
// - Lanes of one warp: each lane whose access may still clash, with its time and its place in
//   the code. Usually this is one lane. Other lanes are in a Crowd.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace cuda_on_cpu {

constexpr uint16_t several = 0xffff, nobody = 0xffff;

struct Touch {
  uint32_t clock;  // the thread's time (clock.h)
  int32_t code;    // distance from the start of the library's code
};
using Crowd = std::array<Touch, 32>;  // one for each lane

// All zero means that there was no access yet.
struct Record {
  uint32_t epoch;        // 0: never accessed
  uint32_t lanes;        // of `warp`
  uint32_t crowd;        // its number in `crowds`; 0: none
  uint32_t other_block;  // an epoch in which another block made an access, at any time
  int32_t other_block_code;
  Touch last;               // by `thread`
  int32_t other_warp_code;  // by `other_warp`, a thread
  uint16_t warp;            // the warp of all threads, or `several`
  uint16_t thread, other_warp;

  bool names(unsigned number) const {
    if (number == thread || (warp == several && number == other_warp)) return true;
    return number / 32 == warp && lanes >> number % 32 & 1;
  }
  bool names_only(unsigned number) const {
    return number / 32 == warp && lanes == 1u << number % 32;
  }
};

// The crowds of the current epoch. Nothing asks for the lanes of an older record.
class Crowds {
 public:
  Touch touch(const Record& record, unsigned lane) const {
    return record.thread % 32 == lane ? record.last : all_[record.crowd][lane];
  }
  void add(Record& record, unsigned lane, Touch touch) {
    if (epoch_ != record.epoch) all_.resize(1), epoch_ = record.epoch;
    if (!record.crowd) record.crowd = all_.size(), all_.emplace_back();
    all_[record.crowd][lane] = touch;
  }
  // For a record that was copied with its element: copies its crowd too.
  void divide(Record& copy) {
    if (!copy.crowd || copy.epoch != epoch_) return;
    all_.push_back(Crowd(all_[copy.crowd]));
    copy.crowd = all_.size() - 1;
  }

 private:
  uint32_t epoch_ = 0;
  std::vector<Crowd> all_;
};
inline Crowds crowds;

}  // namespace cuda_on_cpu
