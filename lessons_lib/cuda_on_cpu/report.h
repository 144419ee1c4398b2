// A fault, as lines of `key value`. Python turns them into sentences.
#pragma once
#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "launch.h"

namespace cuda_on_cpu {

class Report {
 public:
  explicit Report(const char* kind) { add("kind", kind); }

  template <class... Values>
  Report& add(const char* key, const Values&... values) {
    text_ += key;
    ((text_ += ' ', append(values)), ...);
    text_ += '\n';
    return *this;
  }
  Report& index(const char* key, uint3 v) { return add(key, v.x, v.y, v.z); }
  Report& place(const char* prefix, const char* file, int line) {
    return add((prefix + std::string("line")).c_str(), line)
        .add((prefix + std::string("file")).c_str(), file);
  }
  // A place in the machine code, in the form that `addr2line` needs to find the line.
  Report& code(const char* key, const void* pc) {
    Dl_info found;
    if (!pc || !dladdr(pc, &found)) return *this;
    char offset[32];
    snprintf(offset, sizeof offset, "%#zx",
             size_t(static_cast<const char*>(pc) - static_cast<const char*>(found.dli_fbase)));
    return add(key, offset, found.dli_fname);
  }
  const std::string& text() const { return text_; }

 private:
  // Without a C++ stream: streams need a locale, and PyTorch may have loaded another version
  // of the C++ library.
  void append(const char* value) { text_ += value; }
  void append(const std::string& value) { text_ += value; }
  void append(bool value) { text_ += value ? '1' : '0'; }
  void append(const void* value) {
    char address[32];
    snprintf(address, sizeof address, "%p", value);
    text_ += address;
  }
  template <class Number>
  std::enable_if_t<std::is_arithmetic_v<Number>> append(Number value) {
    text_ += std::to_string(value);
  }

  std::string text_;
};

// The first fault since the last `clear`. If blocks ran at the same time, the fault of the
// block with the lowest number counts.
class Outcome {
 public:
  void record(const std::string& report, cudaError_t code, size_t block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != cudaSuccess && block >= block_) return;
    report_ = report, error_ = last_ = code, block_ = block;
  }
  // A request that was refused. The launcher gets the error and may react to it. So the error
  // counts only if the launcher returns it.
  void refuse(const std::string& report, cudaError_t code) {
    std::lock_guard<std::mutex> lock(mutex_);
    refusal_ = report, refusal_code_ = last_ = code;
  }
  // A launch that a GPU would refuse. The error counts, unless the launcher asks for it and
  // then launches in another way.
  void refuse_launch(const std::string& report, cudaError_t code) {
    refuse(report, code);
    refused_ = code;
  }
  void begin_launch() {
    if (last_ == cudaSuccess) refused_ = cudaSuccess;
  }
  bool failed_before(size_t block) {
    std::lock_guard<std::mutex> lock(mutex_);
    return error_ != cudaSuccess && block_ <= block;
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    report_.clear(), refusal_.clear(), block_ = 0;
    error_ = last_ = refused_ = refusal_code_ = cudaSuccess;
  }
  cudaError_t fault() const { return error_; }  // an error of a kernel
  cudaError_t error() const { return error_ != cudaSuccess ? error_ : refused_; }
  // `returned`: the launcher's result.
  const std::string& report(int returned) const {
    bool refused = refused_ != cudaSuccess || returned == refusal_code_;
    return error_ == cudaSuccess && refused ? refusal_ : report_;
  }
  // Asking for the last error clears it, as on a GPU, unless a kernel caused the error. The
  // report stays.
  cudaError_t last_error(bool forget) {
    return forget && error_ == cudaSuccess ? std::exchange(last_, cudaSuccess) : last_;
  }

 private:
  std::mutex mutex_;
  std::string report_, refusal_;
  cudaError_t error_ = cudaSuccess, last_ = cudaSuccess, refused_ = cudaSuccess,
              refusal_code_ = cudaSuccess;
  size_t block_ = 0;
};
inline Outcome outcome;

}  // namespace cuda_on_cpu
