// Checked mode: each access of a kernel comes here before it happens. Is it inside its
// variable or tensor? Does the memory have a value? May it be written? And is it ordered after
// the accesses of other threads?
#pragma once
#include "allocations.h"
#include "clock.h"
#include "counts.h"
#include "tensors.h"

namespace cuda_on_cpu {

#if CHECKED

inline const char* code_base = nullptr;  // the start of the library; records keep distances

inline Region* region_at(const char* address) {
  Region* region = block->shared.region_at(address);
  return region ? region : global_region_at(address);
}

inline const char* memory(const Region& region) {
  return region.tensor()                ? "tensor"
         : region.global()              ? "allocated"
         : region.kind == Kind::dynamic ? "dynamic"
                                        : "shared";
}

inline Report access_report(const char* kind, const Region& region, const char* address,
                            size_t size, Access access, const void* code) {
  Report report(kind);
  report.add("memory", memory(region))
      .add("name", region.name)
      .add("byte", address - region.base)
      .add("size", size);
  report.add("bytes", region.bytes)
      .add("element", region.typed ? region.element : size)
      .add("access", word(access))
      .code("pc", code);
  add_origin(report, region);
  return report;
}

[[noreturn]] inline void report_outside(const Region& region, const char* address, size_t size,
                                        Access access, const void* code) {
  Report report = access_report(region.global() ? "out-of-bounds" : "shared-out-of-bounds",
                                region, address, size, access, code);
  for (const void* entry : self->table_reads) {
    if (!entry) continue;
    Region* table = tensors.region_at(static_cast<const char*>(entry));
    int value;
    memcpy(&value, entry, sizeof value);
    if (table)
      report.add("table", static_cast<const char*>(entry) - table->base, value, table->name);
  }
  block->fail(report);
}

// The record's other lanes whose accesses are not ordered before this thread's access now.
inline uint32_t unordered_lanes(const Record& record) {
  uint32_t others = record.lanes & ~(1u << self->lane), left = 0;
  for (; others; others &= others - 1)
    if (unsigned lane = __builtin_ctz(others);
        self->seen[lane] < crowds.touch(record, lane).clock)
      left |= 1u << lane;
  return left;
}

inline bool clashes_in_block(const Record& record) {
  return record.epoch == epoch.now && (record.warp != self->warp || unordered_lanes(record));
}

// The epoch of an access to a tensor by another block of this launch, if that block did not
// hand over its result. Otherwise 0.
inline uint32_t clash_between_blocks(const Record& record) {
  bool latest = record.epoch < epoch.block_began;  // of an older access only the time is known
  uint32_t when = latest ? record.epoch : record.other_block;
  uint32_t warps = latest && record.warp != several ? 1u << record.warp : ~0u;
  return when >= epoch.launch_began && !epoch.handed_over(when, warps) ? when : 0;
}

inline bool clashes(const Record& record, bool global) {
  return clashes_in_block(record) || (global && clash_between_blocks(record));
}

// The other thread in a clash, and where it was in the code.
struct Other {
  int32_t code;
  uint16_t thread;
};

// A thread of a record that clashes in this block.
inline Other other_thread(const Record& record) {
  if (record.warp == self->warp) {
    unsigned lane = __builtin_ctz(unordered_lanes(record));
    return {crowds.touch(record, lane).code, uint16_t(record.warp * 32 + lane)};
  }
  if (record.warp == several && record.thread / 32 == self->warp)
    return {record.other_warp_code, record.other_warp};
  return {record.last.code, record.thread};
}

inline Other other_block(const Record& record) {
  if (record.epoch < epoch.block_began) return {record.last.code, record.thread};
  return {record.other_block_code, nobody};
}

inline void add_other_block(Report& report, const Record& record) {
  size_t number = epoch.block_of(clash_between_blocks(record));
  const dim3 grid = block->launch().grid;
  uint3 index = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y),
                 unsigned(number / grid.x / grid.y)};
  report.index("other_block", index);
}

// Reports two accesses that clash. A clash within a warp may be only the first of many, some
// of them between warps. And a read of a value that atomics change may be the first step of a
// compare-and-swap. In these two cases the block runs on a little further.
inline void race(const Region& region, const char* address, size_t size, Access access,
                 const void* code, const Cell& cell, const Record& record) {
  bool in_block = clashes_in_block(record), atomic = &record == &cell.atomic;
  Other other = in_block ? other_thread(record) : other_block(record);
  bool in_warp = in_block && other.thread / 32 == self->warp,
       look = access == Access::read && atomic;
  auto weight = look      ? Suspicion::look_before_swap
                : in_warp ? Suspicion::race_in_warp
                          : Suspicion::certain;
  if (weight <= block->suspicion.weight) return;
  Report report = access_report("race", region, address, size, access, code);
  report.add("other_access", word(&record == &cell.read ? Access::read
                                  : atomic              ? Access::atomic
                                                        : Access::write));
  report.code("other_pc", code_base + other.code);
  if (!in_block) add_other_block(report, record);
  if (other.thread != nobody)
    report.add("other_linear", other.thread)
        .index("other_thread", block->threads[other.thread].index);
  auto made_by_other = [&](const Record& made) {
    return made.epoch == record.epoch && made.names(other.thread);
  };
  report.add("both_update", made_by_other(cell.read) && made_by_other(cell.written));
  if (weight == Suspicion::certain) block->stop(block->complete(report));
  block->suspect(weight, report);
  block->suspicion.cell = &cell, block->suspicion.thread = self->number;
}

[[gnu::always_inline]] inline void note(Record& record, const void* code) {
  Touch touch{self->clock, int32_t(static_cast<const char*>(code) - code_base)};
  uint32_t mine = 1u << self->lane, kept = 0;
  if (record.epoch != epoch.now) {
    if (record.epoch && record.epoch < epoch.block_began)
      record.other_block = record.epoch, record.other_block_code = record.last.code;
    record.epoch = epoch.now, record.warp = self->warp, record.crowd = 0;
  } else if (record.warp == several) {
    return;
  } else if (record.warp != self->warp) {
    record.other_warp = record.thread, record.other_warp_code = record.last.code;
    record.warp = several;
  } else if (record.lanes != mine) {
    // It accesses the element again, and has not met other lanes in the meantime.
    if (record.lanes & mine && crowds.touch(record, self->lane).clock == self->clock) return;
    kept = unordered_lanes(record);
    if (kept) crowds.add(record, record.thread % 32, record.last);
  }
  record.lanes = kept | mine, record.thread = self->number, record.last = touch;
}

[[gnu::always_inline]] inline void touch(Region& region, const char* address, size_t size,
                                         Access access, const void* code) {
  bool global = region.global();
  uint32_t since = global ? region.since : epoch.block_began;
  auto found = region.cells(address - region.base, size);
  Cell* cell = found.first;
  for (size_t count = found.second; count; --count, ++cell, address += region.granule()) {
    size_t offset = address - region.base;
    if (access != Access::write && region.begins_empty() &&
        block->suspicion.weight < Suspicion::unwritten &&
        !region.has_value(*cell, offset, since)) {
      if (region.is_padding(offset)) continue;
      const char* kind = region.tensor() ? "output-read"
                         : global        ? "uninitialised"
                                         : "shared-uninitialised";
      Report report = access_report(kind, region, address, size, access, code);
      block->suspect(Suspicion::unwritten, report);
    }
    auto check = [&](const Record& record) {
      if (clashes(record, global)) race(region, address, size, access, code, *cell, record);
    };
    check(cell->written);
    if (access != Access::read) check(cell->read);
    if (access != Access::atomic) check(cell->atomic);
    note(access == Access::read    ? cell->read
         : access == Access::write ? cell->written
                                   : cell->atomic,
         code);
  }
}

// Memory outside tensors and shared variables: a thread's own variables, the kernel's
// arguments and constants of the library.
inline void elsewhere(const char* address, size_t size, Access access, const void* code) {
  if (size_t(address - block->own_stack()) < stack_bytes || block->is_argument(address))
    return;
  static const char* known_page = reinterpret_cast<const char*>(1);  // none
  const char* page =
      reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t(4095));
  Dl_info image;
  if (page == known_page || (page && dladdr(address, &image))) return void(known_page = page);
  Report report("no-address");
  report.add("access", word(access))
      .add("size", size)
      .add("address", static_cast<const void*>(address))
      .code("pc", code);
  block->fail(report);
}

// A loop over atomicCAS first reads the old value. This read need not be atomic, because a
// wrong value only costs another round. So the thread's read just before the atomicCAS clashes
// with nothing.
inline void forgive_read(const void* where, size_t size) {
  if (!self) return;
  const char* address = static_cast<const char*>(where);
  Region* region = region_at(address);
  if (!region || region->kind == Kind::input ||
      size_t(address - region->base) + size > region->bytes)
    return;
  auto [cell, count] = region->cells(address - region->base, size);
  for (; count; --count, ++cell) {
    if (cell->read.epoch == epoch.now && cell->read.names_only(self->number)) cell->read = {};
    if (block->suspicion.cell == cell && block->suspicion.thread == self->number)
      block->suspicion = {};
  }
}

// The launcher's own code runs on the host, which cannot reach a GPU's memory. It can reach
// common memory, but not while a kernel that changes it may still run.
inline void watch_host(const char* address, size_t size, Access access, const void* code) {
  Region* region = global_region_at(address);
  if (!region) return;
  const char* kind = "host-access";
  if (region->freed.file) {
    kind = "use-after-free";
  } else if (region->kind == Kind::common) {
    size_t offset = address - region->base;
    if (offset >= region->bytes || size > region->bytes - offset) {
      kind = "out-of-bounds";
    } else {
      auto [cell, count] = region->cells(offset, size);
      auto early = [&](const Cell& cell) {
        return cell.changed_after(epoch.synchronised) ||
               (access != Access::read && cell.read.epoch > epoch.synchronised);
      };
      if (std::none_of(cell, cell + count, early)) return;
      kind = "host-too-early";
    }
  }
  outcome.record(access_report(kind, *region, address, size, access, code).text(),
                 cudaErrorLaunchFailure, 0);
}

inline void watch(const void* where, size_t size, Access access, const void* code) {
  if (!self) return watch_host(static_cast<const char*>(where), size, access, code);
  const char* address = static_cast<const char*>(where);
  Region* region = region_at(address);
  if (!region) return elsewhere(address, size, access, code);
  if (region->freed.file)
    block->fail(access_report("use-after-free", *region, address, size, access, code));
  size_t offset = address - region->base;
  if (offset >= region->bytes || size > region->bytes - offset)
    report_outside(*region, address, size, access, code);
  if (region->traced >= 0) tensors.record(*region, offset, size, access, code);
  if (region->counted && access == Access::read)
    loads.add(self->number, reinterpret_cast<uintptr_t>(address), size, code);
  if (region->kind == Kind::input) {
    if (access != Access::read)
      block->fail(access_report("write-to-input", *region, address, size, access, code));
    if (region->integers && self->table_reads[0] != where) {
      std::copy_backward(self->table_reads, self->table_reads + 3, self->table_reads + 4);
      self->table_reads[0] = where;
    }
    return;
  }
  if (access == Access::atomic && region->global()) epoch.atomic();
  touch(*region, address, size, access, code);
}

// A GPU accepts an access only at a multiple of its size. Some types of 16 bytes are not
// aligned to their size (two doubles). Then the tensor's type decides.
[[gnu::noinline]] inline void refuse_misaligned(const char* address, size_t size,
                                                Access access, const void* code) {
  if (!self) return;
  Region* region = global_region_at(address);
  bool two_halves = size == 16 && reinterpret_cast<uintptr_t>(address) % 8 == 0 &&
                    !(region && region->element <= 4);
  if (!region) region = block->shared.region_at(address);
  if (region && !two_halves)
    block->fail(access_report("misaligned", *region, address, size, access, code));
}

// The compiler calls this for types that are aligned to their size.
inline void watch_aligned(const void* where, size_t size, Access access, const void* code) {
  if (reinterpret_cast<uintptr_t>(where) % size)
    refuse_misaligned(static_cast<const char*>(where), size, access, code);
  watch(where, size, access, code);
}

#else
inline void watch(const void*, size_t, Access, const void*) {}
inline void forgive_read(const void*, size_t) {}
#endif

}  // namespace cuda_on_cpu
