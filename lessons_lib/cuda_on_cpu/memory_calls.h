// Implements cudaMalloc, cudaMemcpy and similar functions (memory.h), and reports wrong calls.
#pragma once
#include "allocations.h"
#include "watch.h"

namespace cuda_on_cpu {

// A launcher's call that a GPU would refuse, or that reads memory without a value. In the
// text, `{name}` becomes the variable's name.
class Call {
 public:
  Call(const char* what, const char* file, int line) : report_("bad-call") {
    report_.place("", file, line).add("what", what);
  }
  cudaError_t fail(const std::string& text, cudaError_t code = cudaErrorInvalidValue) {
    outcome.record(report_.add("text", text).text(), code, 0);
    return code;
  }
#if CHECKED
  cudaError_t fail(const Region& region, const std::string& text) {
    add_origin(report_, region);
    report_.add("memory", memory(region)).add("name", region.name);
    return fail(text);
  }

  // Whether `size` bytes at `address` may be used on the given side: 'h'ost, 'd'evice or both.
  bool allows(const void* address, size_t size, char side, bool writes, Region*& region) {
    region = global_region_at(static_cast<const char*>(address));
    const char* word = writes ? "writes" : "reads";
    if (!region) {
      if (side != 'd') return true;
      fail(std::string("it ") + word +
           " a GPU's memory, but gets an address of the host's. Are the arguments in order: "
           "to, from, bytes, direction?");
      return false;
    }
    size_t offset = static_cast<const char*>(address) - region->base;
    std::string bytes = std::to_string(size) + (size == 1 ? " byte" : " bytes");
    if (region->freed.file)
      return fail(*region, std::string("it ") + word + " {name} after it was freed"), false;
    if (side == 'h' && region->kind != Kind::common)
      return fail(*region, std::string("it ") + word +
                               " the host's memory, but {name} is a GPU's. Do the arguments, "
                               "to and from, and the direction fit together?"),
             false;
    if (offset > region->bytes || size > region->bytes - offset)
      return fail(*region,
                  std::string("it ") + word + " " + bytes + " " +
                      (offset ? "from byte " + std::to_string(offset) + " of " : "of ") +
                      "{name}, which has " + std::to_string(region->bytes) +
                      ". It counts bytes, not elements"),
             false;
    if (writes && region->kind == Kind::input)
      return fail(*region, "it writes {name}, which is an input (const)"), false;
    return true;
  }
#endif

 private:
  Report report_;
};

cudaError_t allocate(void** pointer, size_t bytes, const Asked& asked) {
  if (outcome.fault() != cudaSuccess) return outcome.fault();
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  *pointer = allocations.add(bytes, asked);
  if (*pointer) return cudaSuccess;
  Report report("bad-call");
  report.place("", asked.file, asked.line).add("what", asked.what);
  report.add("text", "there is no room for " + std::to_string(bytes) +
                         " bytes more, or too many are not freed");
  outcome.refuse(report.text(), cudaErrorMemoryAllocation);
  return cudaErrorMemoryAllocation;
}

cudaError_t release(void* pointer, const char* what, const char* file, int line) {
  if (outcome.fault() != cudaSuccess) return outcome.fault();
  if (!pointer) return cudaSuccess;
  Call call(what, file, line);
  epoch_synchronise();
#if CHECKED
  Region* region = allocations.region_at(static_cast<char*>(pointer));
  if (region && region->freed.file) return call.fail(*region, "{name} was freed before");
  if (!region || region->base != pointer)
    return call.fail("this is no address that cudaMalloc gave");
  allocations.remove(*region, file, line);
#else
  if (!allocations.remove(pointer))
    return call.fail("this is no address that cudaMalloc gave");
#endif
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 const char* what, const char* file, int line) {
  if (outcome.fault() != cudaSuccess) return outcome.fault();
  if (!bytes) return cudaSuccess;
#if CHECKED
  const char* sides = kind == cudaMemcpyHostToHost       ? "hh"
                      : kind == cudaMemcpyHostToDevice   ? "hd"
                      : kind == cudaMemcpyDeviceToHost   ? "dh"
                      : kind == cudaMemcpyDeviceToDevice ? "dd"
                                                         : "??";
  Call call(what, file, line);
  Region *source, *target;
  if (!call.allows(from, bytes, sides[0], false, source) ||
      !call.allows(to, bytes, sides[1], true, target))
    return cudaErrorInvalidValue;
  if (source && source->begins_empty() && source->kind != Kind::input) {
    size_t begin = static_cast<const char*>(from) - source->base;
    size_t unwritten = source->first_unwritten(begin, begin + bytes);
    if (unwritten < begin + bytes) {
      Report report("copies-unwritten");
      report.place("", file, line).add("what", what).add("memory", memory(*source));
      report.add("name", source->name).add("byte", unwritten).add("bytes", source->bytes);
      report.add("element", source->typed ? source->element : 0);
      add_origin(report, *source);
      outcome.record(report.text(), cudaErrorLaunchFailure, 0);
    }
  }
  if (target) target->fill(static_cast<char*>(to) - target->base, bytes);
#endif
  epoch_synchronise();
  memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, size_t bytes, const char* what, const char* file,
                int line) {
  if (outcome.fault() != cudaSuccess) return outcome.fault();
  if (!bytes) return cudaSuccess;
#if CHECKED
  Region* target;
  if (!Call(what, file, line).allows(to, bytes, 'd', true, target))
    return cudaErrorInvalidValue;
  target->fill(static_cast<char*>(to) - target->base, bytes);
#endif
  memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t copy_symbol(void* to, const void* from, size_t offset, size_t bytes,
                        size_t symbol_bytes, const char* what, const char* file, int line) {
  if (outcome.fault() != cudaSuccess) return outcome.fault();
  if (offset + bytes > symbol_bytes)
    return Call(what, file, line)
        .fail("it copies up to byte " + std::to_string(offset + bytes) +
              " of a variable that has " + std::to_string(symbol_bytes) +
              ". It counts bytes, not elements");
  return copy(to, from, bytes, cudaMemcpyDefault, what, file, line);
}

}  // namespace cuda_on_cpu

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = size_t(80) << 30;  // an H100's
  *free_bytes = *total_bytes - cuda_on_cpu::allocations.used;
  return cudaSuccess;
}
