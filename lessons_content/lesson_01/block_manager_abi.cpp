// How the checks of exercises 1.2 and 1.3 call the learner's BlockManager: through ctypes, so
// that a build takes half a second (no pybind11).
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
  } catch (const std::exception& error) { return failed(7, error); } catch (...) {
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

extern "C" int manager_call(void* pointer, int method, int block_id, int* result,
                            char* message) {
  BlockManager& manager = *static_cast<BlockManager*>(pointer);
  return guarded(message, [&] {
    switch (method) {
      case ALLOCATE:
        *result = manager.allocate();
        break;
      case INCREASE_REF_COUNT:
        manager.increase_ref_count(block_id);
        break;
      case FREE:
        manager.free(block_id);
        break;
      case GET_REF_COUNT:
        *result = manager.get_ref_count(block_id);
        break;
      case GET_NUM_FREE_BLOCKS:
        *result = manager.get_num_free_blocks();
        break;
    }
  });
}
