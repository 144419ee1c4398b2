// What a BlockManager does with its data and its locks, seen without a second thread. The
// compiler calls a function before each access to memory (-fsanitize=thread; ours are here,
// not libtsan's), and the mutexes say when they are taken and given back. Two calls race where
// both touch the same byte, one of them writes, and no lock keeps them apart: then it does not
// matter whether they ever met. And in each gap, where a call holds no lock, another call can
// be let in.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if defined(__clang__) && __has_attribute(disable_sanitizer_instrumentation)
#define UNWATCHED __attribute__((disable_sanitizer_instrumentation))
#else
#define UNWATCHED __attribute__((no_sanitize("thread")))
#endif

namespace check {

struct NeverComesBack {};  // thrown where a thread would wait for itself

// a mutex; one on the stack is another one in each call, whose number is here
using Lock = std::pair<const void*, int>;

struct Held {
  Lock lock;
  bool shared;
  int times;
};

struct Touch {
  int method, call;
  bool write;
  std::set<Lock> any, exclusive;  // locks that are held
  int taken, given_back;          // locks of this call so far
  bool operator<(const Touch& other) const {
    return std::tie(method, call, write, any, exclusive, taken, given_back) <
           std::tie(other.method, other.call, other.write, other.any, other.exclusive,
                    other.taken, other.given_back);
  }
};

struct Block {
  size_t bytes;
  long serial;
  int born;  // in which call
};

struct Watch {
  bool recording = false, stuck = false;
  const char* object = nullptr;
  size_t object_bytes = 0;
  const char* stack_from = nullptr;  // where the stack of the call begins
  int method = 0, call = 0, calls = 0, taken = 0, given_back = 0, once = 0;
  std::vector<Held> held;
  std::map<const char*, Block> heap;
  // of each byte: its block, and where in it
  std::map<std::pair<long, long>, std::set<Touch>> touches;
  // locks that a call took, by its number
  std::map<int, int> taken_in;
  void (*visitor)() = nullptr;
  int gaps = 0, visit_at = -1;
};
static bool busy = true;  // inside of the watch itself, or before it is there
alignas(Watch) static char memory_of_the_watch[sizeof(Watch)];
// never destroyed, since memory is freed to the very end
static Watch& watch = *new (memory_of_the_watch) Watch;
static bool ready = (busy = false, true);

// While it lives, the watch looks away.
class Busy {
 public:
  UNWATCHED Busy() : before_(busy) { busy = true; }
  UNWATCHED ~Busy() { busy = before_; }

 private:
  bool before_;
};

UNWATCHED static bool on_stack(const void* address) {
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  return address >= here && address <= watch.stack_from;
}

// A gap in a call: no lock is held, and a visitor may come in.
UNWATCHED static void gap() {
  if (!watch.call || !watch.held.empty() || watch.gaps++ != watch.visit_at) return;
  auto visitor = std::exchange(watch.visitor, nullptr);
  bool before = std::exchange(busy, false);
  if (visitor) visitor();
  busy = before;
}

UNWATCHED static void taking(const void* mutex, bool shared, bool recursive) {
  Busy while_here;
  gap();
  Lock lock{mutex, on_stack(mutex) ? watch.call : 0};
  for (Held& held : watch.held) {
    if (held.lock != lock) continue;
    if (!(held.shared && shared) && !recursive) {
      watch.stuck = true;
      throw NeverComesBack{};
    }
    ++held.times;
    return;
  }
  watch.held.push_back({lock, shared, 1});
  ++watch.taken;
  if (watch.call) ++watch.taken_in[watch.call];
}

UNWATCHED static void given_back(const void* mutex) {
  Busy while_here;
  for (size_t i = 0; i < watch.held.size(); ++i) {
    if (watch.held[i].lock.first != mutex || --watch.held[i].times) continue;
    watch.held.erase(watch.held.begin() + i);
    ++watch.given_back;
    return gap();
  }
}

UNWATCHED static bool is_held(const void* mutex) {
  return std::any_of(watch.held.begin(), watch.held.end(),
                     [&](const Held& held) { return held.lock.first == mutex; });
}

// A mutex that says what is done to it. Nothing else runs, so it need not lock anything.
template <bool recursive>
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() { taking(this, false, recursive); }
  void unlock() { given_back(this); }
  bool try_lock() { return may_take() && (recursive || !is_held(this)) && (lock(), true); }
  template <class Time>
  bool try_lock_for(const Time&) {
    return try_lock();
  }
  template <class Time>
  bool try_lock_until(const Time&) {
    return try_lock();
  }
  void lock_shared() { taking(this, true, false); }
  void unlock_shared() { given_back(this); }
  bool try_lock_shared() { return may_take() && !is_held(this) && (lock_shared(), true); }

 private:
  // Another thread may hold the lock when a call tries it. So a call's first try fails.
  UNWATCHED bool may_take() {
    Busy while_here;
    return std::exchange(tried_in_, watch.call) == watch.call;
  }
  int tried_in_ = 0;
};

struct WatchedOnceFlag {
  bool done = false;
};

}  // namespace check

namespace std {
using watched_mutex = check::Mutex<false>;
using watched_recursive_mutex = check::Mutex<true>;
using watched_once_flag = check::WatchedOnceFlag;
// What is done once is done before all other calls go on: it counts as a part of the
// constructor.
template <class Body, class... Arguments>
void watched_call_once(watched_once_flag& flag, Body&& body, Arguments&&... arguments) {
  struct Unwatched {
    Unwatched() { ++check::watch.once; }
    ~Unwatched() { --check::watch.once; }
  } here;
  if (!std::exchange(flag.done, true))
    std::apply(std::forward<Body>(body),
               std::forward_as_tuple(std::forward<Arguments>(arguments)...));
}
}  // namespace std
#define mutex watched_mutex
#define timed_mutex watched_mutex
#define shared_mutex watched_mutex
#define shared_timed_mutex watched_mutex
#define recursive_mutex watched_recursive_mutex
#define recursive_timed_mutex watched_recursive_mutex
#define once_flag watched_once_flag
#define call_once watched_call_once

namespace check {

// Which block of memory an address lies in, if calls share it: the manager itself, memory that
// an earlier call or the constructor asked for, or a static variable. A negative number: none
// of these.
UNWATCHED static std::pair<long, long> place_of(const char* address) {
  if (address >= watch.object && address < watch.object + watch.object_bytes)
    return {0, address - watch.object};
  const char* own = memory_of_the_watch;
  bool ours_alone = (address >= own && address < own + sizeof(Watch)) ||
                    address == reinterpret_cast<const char*>(&busy);
  if (on_stack(address) || ours_alone) return {-1, 0};
  auto after = watch.heap.upper_bound(address);
  if (after != watch.heap.begin()) {
    auto& [base, block] = *std::prev(after);
    if (address < base + block.bytes)
      return {block.born == watch.call ? -1 : block.serial, address - base};
  }
  Dl_info ours, theirs;
  bool is_static =
      dladdr(&watch, &ours) && dladdr(address, &theirs) && ours.dli_fbase == theirs.dli_fbase;
  return {is_static ? 1 : -1,
          is_static ? address - static_cast<const char*>(ours.dli_fbase) : 0};
}

UNWATCHED static void touch(const void* address, size_t bytes, bool write) {
  if (busy || !watch.recording || !watch.call || watch.once) return;
  Busy while_here;
  auto [block, offset] = place_of(static_cast<const char*>(address));
  if (block < 0) return;
  Touch touch{watch.method, watch.call, write, {}, {}, watch.taken, watch.given_back};
  for (const Held& held : watch.held) {
    touch.any.insert(held.lock);
    if (!held.shared) touch.exclusive.insert(held.lock);
  }
  for (size_t i = 0; i < bytes; ++i) watch.touches[{block, offset + long(i)}].insert(touch);
}

UNWATCHED static void touch_atomically() {
  if (busy || !watch.call) return;
  Busy while_here;
  gap();
}

UNWATCHED static void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  if (!busy) {
    Busy while_here;
    static long serial = 1;
    watch.heap[static_cast<char*>(memory)] = {bytes, ++serial, watch.call};
  }
  return memory;
}
UNWATCHED static void release(void* memory) {
  if (!busy) {
    Busy while_here;
    watch.heap.erase(static_cast<char*>(memory));
  }
  std::free(memory);
}

// A call of a method, from here to the end of the block.
class Call {
 public:
  UNWATCHED Call(const void* object, size_t bytes, int method)
      : before_{watch.object, watch.stack_from, watch.object_bytes, watch.method,
                watch.call,   watch.taken,      watch.given_back} {
    Busy while_here;
    watch.object = static_cast<const char*>(object), watch.object_bytes = bytes,
    watch.method = method;
    watch.stack_from = static_cast<const char*>(__builtin_frame_address(0)) + 4096;
    watch.call = ++watch.calls, watch.taken = watch.given_back = 0;
  }
  UNWATCHED ~Call() {
    Busy while_here;
    std::tie(watch.object, watch.stack_from, watch.object_bytes, watch.method, watch.call,
             watch.taken, watch.given_back) = before_;
  }

 private:
  std::tuple<const char*, const char*, size_t, int, int, int, int> before_;
};

// How a method used locks. The numbers are those of Python's `USES` (native.py).
enum Use {
  COVERED,
  SHARED_FOR_A_CHANGE,
  LOOKS_BEFORE,
  CHANGES_BEFORE,
  AFTER,
  OWN_MUTEX,
  WITHOUT
};

UNWATCHED static bool race(const Touch& one, const Touch& other) {
  if (one.call == other.call || !(one.write || other.write)) return false;
  const std::set<Lock>& first = one.write ? one.exclusive : one.any;
  const std::set<Lock>& second = other.write ? other.exclusive : other.any;
  return std::none_of(first.begin(), first.end(),
                      [&](const Lock& lock) { return second.count(lock); });
}

// The mutex that most touches hold.
UNWATCHED static Lock usual_lock() {
  std::map<Lock, int> counts;
  for (auto& [place, touches] : watch.touches)
    for (const Touch& touch : touches)
      for (const Lock& lock : touch.any) counts[lock] += lock.second == 0;
  Lock usual{nullptr, 0};
  int most = 0;
  for (auto& [lock, count] : counts)
    if (count > most) usual = lock, most = count;
  return usual;
}

UNWATCHED static Use use_of(const Touch& touch) {
  if (!touch.any.empty()) return OWN_MUTEX;
  if (touch.given_back) return AFTER;
  return !watch.taken_in.count(touch.call) ? WITHOUT
         : touch.write                     ? CHANGES_BEFORE
                                           : LOOKS_BEFORE;
}

// For each method how it used the usual lock, where calls race.
UNWATCHED static void judge(int* uses, int methods) {
  Busy while_here;
  const Lock usual = usual_lock();
  std::map<int, std::set<Use>> found;
  std::set<int> changes_without, takes_locks;
  for (auto& [place, touches] : watch.touches)
    for (const Touch& one : touches) {
      if (watch.taken_in.count(one.call)) takes_locks.insert(one.method);
      for (const Touch& other : touches) {
        if (!race(one, other)) continue;
        if (one.any.count(usual)) {
          if (one.write && !one.exclusive.count(usual))
            found[one.method].insert(SHARED_FOR_A_CHANGE);
          continue;
        }
        found[one.method].insert(use_of(one));
        if (one.write) changes_without.insert(one.method);
      }
    }
  for (int method = 0; method < methods; ++method) {
    auto& all = found[method];
    uses[method] = all.empty() ? COVERED : *all.rbegin();
    // Some of its calls need no lock, it seems to say. They do.
    if (uses[method] == WITHOUT && takes_locks.count(method)) {
      all.erase(WITHOUT);
      all.insert(changes_without.count(method) ? CHANGES_BEFORE : LOOKS_BEFORE);
      uses[method] = *all.rbegin();
    }
  }
}

}  // namespace check

void* operator new(size_t bytes) { return check::allocate(bytes); }
void* operator new[](size_t bytes) { return check::allocate(bytes); }
void operator delete(void* memory) noexcept { check::release(memory); }
void operator delete[](void* memory) noexcept { check::release(memory); }
void operator delete(void* memory, size_t) noexcept { check::release(memory); }
void operator delete[](void* memory, size_t) noexcept { check::release(memory); }

#define HOOKS(bytes)                                                                      \
  UNWATCHED void __tsan_read##bytes(void* p) { check::touch(p, bytes, false); }           \
  UNWATCHED void __tsan_write##bytes(void* p) { check::touch(p, bytes, true); }           \
  UNWATCHED void __tsan_unaligned_read##bytes(void* p) { check::touch(p, bytes, false); } \
  UNWATCHED void __tsan_unaligned_write##bytes(void* p) { check::touch(p, bytes, true); } \
  UNWATCHED void __tsan_volatile_read##bytes(void* p) { check::touch(p, bytes, false); }  \
  UNWATCHED void __tsan_volatile_write##bytes(void* p) { check::touch(p, bytes, true); }

// An atomic access races with nothing, and before it another call can come in.
#define ATOMIC_UPDATE(bits, T, name)                                      \
  UNWATCHED T __tsan_atomic##bits##_##name(volatile T* p, T value, int) { \
    check::touch_atomically();                                            \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                   \
  }
#define ATOMIC_HOOKS(bits, T)                                                              \
  UNWATCHED T __tsan_atomic##bits##_load(const volatile T* p, int) {                       \
    check::touch_atomically();                                                             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
  }                                                                                        \
  UNWATCHED void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                \
    check::touch_atomically();                                                             \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                          \
  }                                                                                        \
  UNWATCHED T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                \
    check::touch_atomically();                                                             \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                \
  }                                                                                        \
  UNWATCHED bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, \
                                                               T value, int, int) {        \
    check::touch_atomically();                                                             \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                  \
  }                                                                                        \
  UNWATCHED bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected,   \
                                                             T value, int, int) {          \
    check::touch_atomically();                                                             \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                  \
  }                                                                                        \
  ATOMIC_UPDATE(bits, T, fetch_add)                                                        \
  ATOMIC_UPDATE(bits, T, fetch_sub)                                                        \
  ATOMIC_UPDATE(bits, T, fetch_and)                                                        \
  ATOMIC_UPDATE(bits, T, fetch_or)                                                         \
  ATOMIC_UPDATE(bits, T, fetch_xor)

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
ATOMIC_HOOKS(8, unsigned char)
ATOMIC_HOOKS(16, unsigned short)
ATOMIC_HOOKS(32, unsigned)
ATOMIC_HOOKS(64, unsigned long)
UNWATCHED void __tsan_read_range(void* p, size_t bytes) { check::touch(p, bytes, false); }
UNWATCHED void __tsan_write_range(void* p, size_t bytes) { check::touch(p, bytes, true); }
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
