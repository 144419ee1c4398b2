// How the check of exercise 1.1 calls the learner's FreeList.
#include <cstring>
#include <exception>

enum Method { POP, PUSH, SIZE };
constexpr int RUNTIME_ERROR = 7;  // as in native.py

// Runs `body`; returns 0, or the number of an error with its text in `message`.
template <class Body>
static int guarded(char* message, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), 255);
  } catch (...) { std::strncpy(message, "something thrown that is no std::exception", 255); }
  return RUNTIME_ERROR;
}

extern "C" void* free_list_new(int num_blocks, int* code, char* message) {
  void* list = nullptr;
  *code = guarded(message, [&] { list = new FreeList(num_blocks); });
  return list;
}
extern "C" void free_list_delete(void* list) { delete static_cast<FreeList*>(list); }

extern "C" int free_list_call(void* pointer, int method, int block_id, int* result,
                              char* message) {
  FreeList& list = *static_cast<FreeList*>(pointer);
  return guarded(message, [&] {
    if (method == POP) *result = list.pop();
    if (method == PUSH) list.push(block_id);
    if (method == SIZE) *result = list.size();
  });
}
