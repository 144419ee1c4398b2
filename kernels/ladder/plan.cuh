#pragma once

#include "balanced.cuh"
#include "plan_share.cuh"

// Plans a batch on the device, as best_plan of work_plan.py does on the host.
// One block of threads does it all. It deals no rows out: the launch does not know how many
// blocks that would take.
constexpr int plan_threads = 1024, num_divisions = 3;
constexpr int most_seqs = 4096;   // that there is room for
constexpr int most_blocks = 256;  // likewise; no card has as many multiprocessors
static_assert(most_blocks % 32 == 0, "a warp looks at one division");

// Measured, as in work_plan.py.
constexpr int few_tiles = 64;
constexpr int part_cost = 40;

// What the attention kernel is told besides the items. The sequences without tokens come after
// it.
struct PlanHeader {
  int heads_at_once, num_empty;
};

struct PlanShared {
  int begins[most_seqs + 1];         // of the sequences with tokens; see Rows
  unsigned short seq_of[most_seqs];  // their places in the batch
  Share shares[num_divisions][most_blocks];
  int64_t of_warp[plan_threads / 32];
  int num_seqs, longest, divisor;
  int most_tiles[num_divisions], most_parts[num_divisions], blocks_with_work[num_divisions];
};

// The larger of `largest` and the value of each lane. All lanes of a warp call it.
__device__ inline void take_largest(int& largest, int value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = max(value, __shfl_xor_sync(0xffffffff, value, distance));
  if (threadIdx.x % 32 == 0) atomicMax(&largest, value);
}

// The sum of the values of all threads before this one. All threads call it, once.
__device__ inline int64_t sum_before(int64_t value, int64_t (&of_warp)[plan_threads / 32]) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    int64_t other = __shfl_up_sync(0xffffffff, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();  // the sums of all warps
  sum -= value;
  for (int other = 0; other < warp; ++other) sum += of_warp[other];
  return sum;
}

// Lists the sequences with tokens in shared memory, and those without in `empty`.
__device__ inline void list_sequences(PlanShared& shared, const int* context_lens,
                                      int num_seqs, int* empty) {
  int each = (num_seqs + plan_threads - 1) / plan_threads;
  int first = min(int(threadIdx.x) * each, num_seqs), end = min(first + each, num_seqs);
  // One sum counts both: tiles in its upper half, sequences with tokens in its lower.
  auto count = [&](int seq) {
    int64_t tiles = (int64_t(max(context_lens[seq], 0)) + tile_size - 1) / tile_size;
    return tiles << 32 | (tiles > 0);
  };
  int64_t sum = 0, longest = 0;
  for (int seq = first; seq < end; ++seq) {
    sum += count(seq);
    longest = max(longest, count(seq) >> 32);
  }
  sum = sum_before(sum, shared.of_warp);
  take_largest(shared.longest, longest);
  for (int seq = first; seq < end; ++seq) {
    int place = sum & 0xffffffff;
    if (int64_t one = count(seq)) {
      shared.seq_of[place] = seq;
      shared.begins[place] = sum >> 32;
      sum += one;
    } else {
      empty[seq - place] = seq;
    }
  }
  if (threadIdx.x == plan_threads - 1) {
    shared.num_seqs = sum & 0xffffffff;
    shared.begins[shared.num_seqs] = sum >> 32;
  }
}

// How many KV heads the warps of a block share: 1, 2, or one for each warp.
__device__ inline int choose_heads(int num_rows, int longest, int num_kv_heads,
                                   int multiprocessors) {
  if (num_rows <= multiprocessors && longest <= few_tiles) return 1;
  if (num_kv_heads % num_warps == 0 && 2 * (num_rows / num_warps) >= 3 * multiprocessors)
    return num_warps;
  return num_kv_heads % 2 == 0 && 8 * (num_rows / 2) >= multiprocessors ? 2 : 1;
}

// The number of the division that should take the least time. Its shares are in shared.shares,
// and num_blocks is how many.
//   busy: the number of blocks that keep the memory busy
__device__ inline int choose_division(PlanShared& shared, const Rows& rows, int heads_at_once,
                                      int multiprocessors, int busy, int& num_blocks) {
  int divisor = threadIdx.x + 1, num_rows = rows.count();
  bool divides = divisor <= multiprocessors && num_rows % divisor == 0;
  take_largest(shared.divisor, divides ? divisor : 1);
  __syncthreads();  // the largest divisor
  auto division = [&](int number) -> Division {
    if (number == 0) return {shared.divisor, num_rows / shared.divisor, 1};
    if (number == 1)
      return {multiprocessors / num_rows * num_rows, 1, multiprocessors / num_rows};
    return {min(busy, rows.total()), 0, 0};
  };
  for (int i = threadIdx.x; i < num_divisions * most_blocks; i += plan_threads) {
    int number = i / most_blocks, block = i % most_blocks;
    Share share{};
    if (block < division(number).num_blocks) {
      share = share_of(rows, division(number), block);
      shared.shares[number][block] = share;
    }
    take_largest(shared.most_tiles[number], share.end - share.begin);
    take_largest(shared.most_parts[number], share.num_parts());
    unsigned with_work = __ballot_sync(0xffffffff, share.num_items() > 0);
    if (threadIdx.x % 32 == 0) atomicAdd(&shared.blocks_with_work[number], __popc(with_work));
  }
  __syncthreads();  // all shares
  int best = 0;
  int64_t least = 0;
  for (int number = 0; number < num_divisions; ++number) {
    // The more blocks share the memory's rate, the slower each of them is.
    int64_t tiles = int64_t(shared.most_tiles[number]) * heads_at_once;
    int64_t cost = tiles * max(shared.blocks_with_work[number], busy) +
                   int64_t(part_cost) * shared.most_parts[number] * multiprocessors;
    int blocks = division(number).num_blocks;
    if (blocks == 0 || (number > 0 && cost >= least)) continue;
    best = number, least = cost, num_blocks = blocks;
  }
  return best;
}

// What the items are made from.
struct Plan {
  Rows rows;
  const Share* shares;
  int num_blocks, heads_at_once;
  int later_items;  // the place of the first item that is no block's first

  __device__ int block_with(int tile) const {
    return last_not_above(tile, num_blocks, [&](int block) { return shares[block].begin; });
  }

  // The n-th item of a block.
  //   seq_of, context_lens: see PlanShared; of the whole batch
  __device__ WorkItem item(int block, int n, const unsigned short* seq_of,
                           const int* context_lens) const {
    const Share& share = shares[block];
    int row = share.row(n), seq = seq_of[row / rows.groups];
    int first = rows.begin(row), end = rows.begin(row + 1);
    WorkItem item{seq, row % rows.groups * heads_at_once};
    item.begin = (max(share.begin, first) - first) * tile_size;
    item.end = min((min(share.end, end) - first) * tile_size, context_lens[seq]);
    item.part = item.first_part = -1, item.num_parts = 1;
    if (n < share.num_parts()) {
      // Two rows never get the same number, since a block has no more than one row that other
      // blocks continue.
      int first_block = block_with(first);
      item.part = first_block + block;
      item.first_part = 2 * first_block;
      item.num_parts = block_with(end - 1) - first_block + 1;
    }
    item.next = n + 1 < share.num_items() ? later_items + share.first_row + n : -1;
    return item;
  }

  // The block that begins with the item at a place. If there are fewer blocks than places,
  // those without work are spread among the others: multiprocessors that are neighbours share
  // a way to the memory, and so none of these ways is idle.
  __device__ int block_at(int place) const {
    int block = (place * num_blocks + later_items - 1) / later_items;
    return block < num_blocks && block * later_items / num_blocks == place ? block : -1;
  }

  // Writes the first item of each block to a place among the first. An item without a sequence
  // means that there is no work. A block's later items are in a row, at the place of its first
  // row.
  __device__ void write(WorkItem* items, const unsigned short* seq_of,
                        const int* context_lens) const {
    int num_places = later_items + max(rows.count() - 1, 0);
    for (int i = threadIdx.x; i < num_places; i += plan_threads) {
      if (i < later_items) {
        int block = num_blocks > 0 ? block_at(i) : -1;
        bool has_work = block >= 0 && shares[block].num_items() > 0;
        items[i] = has_work ? item(block, 0, seq_of, context_lens) : WorkItem{-1};
        continue;
      }
      int row = i - later_items, end = rows.begin(row + 1), block = block_with(end);
      if (shares[block].begin < end)  // the next row is a later item of the same block
        items[i] = item(block, row - shares[block].first_row + 1, seq_of, context_lens);
    }
  }
};

__global__ void __launch_bounds__(plan_threads)
    plan_kernel(const int* context_lens, int num_seqs, int num_kv_heads, int multiprocessors,
                int busy, WorkItem* items, PlanHeader* header) {
  __shared__ PlanShared shared;
  if (threadIdx.x == 0) {
    shared.longest = 0, shared.divisor = 1;
    for (int i = 0; i < num_divisions; ++i)
      shared.most_tiles[i] = shared.most_parts[i] = shared.blocks_with_work[i] = 0;
  }
  list_sequences(shared, context_lens, num_seqs, reinterpret_cast<int*>(header + 1));
  __syncthreads();  // all sequences
  int heads_at_once = choose_heads(shared.num_seqs * num_kv_heads, shared.longest,
                                   num_kv_heads, multiprocessors);
  if (threadIdx.x == 0) *header = {heads_at_once, num_seqs - shared.num_seqs};
  Rows rows{shared.begins, shared.num_seqs, num_kv_heads / heads_at_once};
  int num_blocks = 0, division = 0;
  if (shared.num_seqs > 0)
    division = choose_division(shared, rows, heads_at_once, multiprocessors, busy, num_blocks);
  Plan{rows, shared.shares[division], num_blocks, heads_at_once, multiprocessors}.write(
      items, shared.seq_of, context_lens);
}

// num_blocks: of the attention kernel, one for each multiprocessor. busy: how many of them
// keep the memory busy. items: room for num_blocks + num_seqs * num_kv_heads WorkItems.
// header: a PlanHeader and num_seqs numbers.
extern "C" int plan_work(const int* context_lens, int num_seqs, int num_kv_heads,
                         int num_blocks, int busy, int* items, int* header,
                         cudaStream_t stream) {
  plan_kernel<<<1, plan_threads, 0, stream>>>(context_lens, num_seqs, num_kv_heads, num_blocks,
                                              busy, reinterpret_cast<WorkItem*>(items),
                                              reinterpret_cast<PlanHeader*>(header));
  return cudaGetLastError();
}
