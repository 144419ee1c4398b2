// Fuzzes the course's block manager (lesson 01), guided by coverage (libFuzzer), under the
// address and undefined-behaviour sanitizers. It makes any sequence of calls, and compares
// each result with a model: a map from block id to count.
//
//     clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -Ikernels \
//         tools/fuzz/block_manager.cpp -o fuzz
//     ./fuzz -max_total_time=60

#include "block_manager.h"

#include <cstdint>
#include <cstdlib>
#include <map>

// Aborts, so that the fuzzer keeps the input. assert() would do nothing in a build with
// NDEBUG.
static void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Call>
static bool succeeds(Call call) {
  try {
    call();
    return true;
  } catch (const std::exception&) { return false; }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int num_blocks = static_cast<int8_t>(data[0]);
  if (num_blocks <= 0) {
    require(!succeeds([&] { BlockManager refused(num_blocks); }));
    return 0;
  }
  BlockManager manager(num_blocks);
  std::map<int, int> counts;  // of the blocks in use
  for (size_t i = 1; i + 1 < size; i += 2) {
    const int block_id = static_cast<int8_t>(data[i + 1]);
    const bool used = counts.count(block_id) > 0;
    switch (data[i] % 4) {
      case 0: {
        int given = -1;
        const bool done = succeeds([&] { given = manager.allocate(); });
        require(done == (static_cast<int>(counts.size()) < num_blocks));
        if (done) {
          require(given >= 0 && given < num_blocks && counts.count(given) == 0);
          counts[given] = 1;
        }
        break;
      }
      case 1:
        require(succeeds([&] { manager.increase_ref_count(block_id); }) == used);
        if (used) ++counts[block_id];
        break;
      case 2:
        require(succeeds([&] { manager.free(block_id); }) == used);
        if (used && --counts[block_id] == 0) counts.erase(block_id);
        break;
      default:
        require(succeeds([&] { manager.get_ref_count(block_id); }) ==
                (block_id >= 0 && block_id < num_blocks));
    }
    require(manager.get_num_free_blocks() == num_blocks - static_cast<int>(counts.size()));
    for (int id = 0; id < num_blocks; ++id)
      require(manager.get_ref_count(id) == (counts.count(id) ? counts[id] : 0));
  }
  return 0;
}
