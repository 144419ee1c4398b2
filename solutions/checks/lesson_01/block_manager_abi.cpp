// How the checks of exercises 1.2 and 1.3 call the learner's BlockManager: through ctypes, so that a build takes half a
// second (no pybind11) and calls from Python threads run at the same time (ctypes gives up the GIL).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

enum Method { ALLOCATE, INCREASE_REF_COUNT, FREE, GET_REF_COUNT, GET_NUM_FREE_BLOCKS };

// Runs `body`; returns 0 or the number of the error that it threw, with its text in `message`.
template <class Body>
static int guarded(char* message, Body body) {
  auto failed = [&](int code, const std::exception& error) {
    std::strncpy(message, error.what(), 255);
    return code;
  };
  try {
    body();
    return 0;
  } catch (const PoolSizeError& error) {
    return failed(1, error);
  } catch (const OutOfBlocksError& error) {
    return failed(2, error);
  } catch (const BlockIndexError& error) {
    return failed(3, error);
  } catch (const DoubleFreeError& error) {
    return failed(4, error);
  } catch (const BlockNotAllocatedError& error) {
    return failed(5, error);
  } catch (const std::out_of_range&) {
    std::strncpy(message, "it names no block", 255);
    return 6;
  } catch (const std::exception& error) {
    return failed(7, error);
  } catch (...) {
    std::strncpy(message, "something thrown that is no std::exception", 255);
    return 7;
  }
}

extern "C" void* manager_new(int num_blocks, int* code, char* message) {
  void* manager = nullptr;
  *code = guarded(message, [&] { manager = new BlockManager(num_blocks); });
  return manager;
}
extern "C" void manager_delete(void* manager) { delete static_cast<BlockManager*>(manager); }

extern "C" int manager_call(void* pointer, int method, int block_id, int* result, char* message) {
  BlockManager& manager = *static_cast<BlockManager*>(pointer);
  return guarded(message, [&] {
    switch (method) {
      case ALLOCATE: *result = manager.allocate(); break;
      case INCREASE_REF_COUNT: manager.increase_ref_count(block_id); break;
      case FREE: manager.free(block_id); break;
      case GET_REF_COUNT: *result = manager.get_ref_count(block_id); break;
      case GET_NUM_FREE_BLOCKS: *result = manager.get_num_free_blocks(); break;
    }
  });
}

// The learner's mutex, if the class has a member `mutex_`; built with -fno-access-control, which opens private members.
enum Action { LOCK, UNLOCK, TRY_LOCK };
template <class Manager>
static auto use_mutex(Manager& manager, int action, int) -> decltype(manager.mutex_.try_lock(), 1) {
  if (action == TRY_LOCK) return manager.mutex_.try_lock() ? (manager.mutex_.unlock(), 1) : 0;
  action == LOCK ? manager.mutex_.lock() : manager.mutex_.unlock();
  return 1;
}
template <class Manager>
static int use_mutex(Manager&, int, long) {
  return -1;
}
// 1: done; 0: the mutex is held by another thread (TRY_LOCK); -1: there is no mutex_.
extern "C" int manager_mutex(void* manager, int action) {
  return use_mutex(*static_cast<BlockManager*>(manager), action, 0);
}
extern "C" void set_nap(int microseconds) { nap_microseconds = microseconds; }
extern "C" int is_napping() { return napping; }

// The stress test in a process of its own, since a broken manager may crash it or never come back. 0: it held.
extern "C" int manager_stress(int num_threads, int rounds) {
  pid_t child = fork();
  if (child == 0) {
    alarm(20);  // seconds; it takes some hundredths of one
    freopen("/dev/null", "w", stderr);  // the words of a crash differ from run to run
    _exit(stress(num_threads, rounds) != 0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status;
}
