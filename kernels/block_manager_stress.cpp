#include <atomic>
#include <chrono>
#include <thread>

// Several threads take a block of the same manager, keep it for a moment and give it back. A
// block must have one owner at a time, and at the end every block must be free. Returns how
// often either rule was broken; 0 is right.
extern "C" int stress(int num_threads, int rounds) {
  const int num_blocks = 2 * num_threads;
  BlockManager manager(num_blocks);
  std::vector<std::atomic<int>> owners(num_blocks);
  std::atomic<int> broken{0};
  auto work = [&] {
    for (int round = 0; round < rounds && !broken; ++round) {
      int block_id = manager.allocate();
      if (owners.at(block_id).fetch_add(1) != 0) ++broken;
      std::this_thread::sleep_for(std::chrono::microseconds(1));
      owners[block_id].fetch_sub(1);
      manager.free(block_id);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return broken + (num_blocks - manager.get_num_free_blocks());
}
