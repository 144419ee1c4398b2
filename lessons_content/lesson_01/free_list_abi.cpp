// How the check of exercise 1.1 calls the learner's FreeList.
#include <cstring>
#include <exception>

static int failed(char* message, const char* text) {
  std::strncpy(message, text, 255);
  return 1;
}

extern "C" void* free_list_new(int num_blocks, char* message) {
  try {
    return new FreeList(num_blocks);
  } catch (const std::exception& error) {
    failed(message, error.what());
    return nullptr;
  }
}
extern "C" void free_list_delete(void* list) { delete static_cast<FreeList*>(list); }
extern "C" int free_list_pop(void* list, int* result, char* message) {
  try {
    *result = static_cast<FreeList*>(list)->pop();
    return 0;
  } catch (const std::exception& error) { return failed(message, error.what()); } catch (...) {
    return failed(message, "something thrown that is no std::exception");
  }
}
extern "C" int free_list_push(void* list, int block_id, char* message) {
  try {
    static_cast<FreeList*>(list)->push(block_id);
    return 0;
  } catch (const std::exception& error) { return failed(message, error.what()); } catch (...) {
    return failed(message, "something thrown that is no std::exception");
  }
}
extern "C" int free_list_size(void* list) { return static_cast<FreeList*>(list)->size(); }
