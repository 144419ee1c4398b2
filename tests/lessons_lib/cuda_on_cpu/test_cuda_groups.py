"""Cooperative groups: ranks and sizes, votes and sums of tiles, barriers that order."""

import functools
import itertools
import math
import operator

import pytest
import torch

from cuda_text import Kernels, device_of, each_target, error_of, integers, launcher
from lessons_lib import KernelError

SIZES = (1, 2, 4, 8, 16, 32)
OPERATIONS = {
    "plus": operator.add,
    "less": min,
    "greater": max,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
}
KERNELS = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void ranks_kernel(int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto sixteen = cg::tiled_partition<16>(block);
  auto four = cg::tiled_partition<4>(sixteen);
  cg::thread_block_tile<4> any_four = four;
  cg::thread_group all = block, some = cg::tiled_partition(all, 8),
                   part = cg::tiled_partition(some, 8);
  unsigned ranks[] = {
      block.thread_rank(), block.num_threads(), block.size(),
      sixteen.thread_rank(), sixteen.size(),
      sixteen.meta_group_rank(), sixteen.meta_group_size(),
      four.thread_rank(), four.num_threads(),
      four.meta_group_rank(), four.meta_group_size(),
      any_four.meta_group_rank(), any_four.meta_group_size(),
      (unsigned)all.thread_rank(), (unsigned)all.size(),
      (unsigned)some.thread_rank(), (unsigned)some.size(),
      (unsigned)part.thread_rank(), (unsigned)part.size(),
      cg::this_thread().size(), cg::this_thread().thread_rank(),
      (unsigned)cg::thread_rank(four), (unsigned)cg::group_size(four)};
  int rank = block.thread_rank(), count = sizeof ranks / sizeof ranks[0];
  for (int i = 0; i < count; ++i) out[rank * count + i] = ranks[i];
}
__global__ void coalesced_kernel(int* out) {
  auto here = cg::coalesced_threads();
  int rank = threadIdx.x;
  out[rank] = here.thread_rank() < here.size() &&
              here.meta_group_rank() < here.meta_group_size() && here.any(1) &&
              !here.any(0) && here.all(1) && !here.all(0) && here.ballot(1) != 0 &&
              here.ballot(0) == 0 && here.shfl(rank, here.thread_rank()) == rank;
}
template <unsigned size> __device__ void use_tile(const int* x, int rank, int* out) {
  auto tile = cg::tiled_partition<size>(cg::this_thread_block());
  int value = x[rank];
  out[0] = tile.any(value % 3 == 0), out[1] = tile.all(value % 3 == 0),
  out[2] = tile.ballot(value % 3 == 0);
  REDUCTIONS
}
__global__ void tiles_kernel(const int* x, int* out) {
  int rank = cg::this_thread_block().thread_rank();
  TILES
}
// Each thread reads its neighbour's number after a group's barrier.
__global__ void order_kernel(const int* x, int* out, int size, int which) {
  __shared__ int numbers[64];
  int rank = threadIdx.x;
  cg::thread_group block = cg::this_thread_block();
  cg::thread_group group = size < 64 ? cg::tiled_partition(block, size) : block;
  numbers[rank] = x[rank];
  if (which == 0) group.sync();
  if (which == 1) cg::sync(group);
  if (which == 2) cg::sync(cg::coalesced_threads());
  out[rank] = numbers[rank ^ (size - 1)];
}
""".replace(
    "REDUCTIONS",
    "\n  ".join(
        f"out[{3 + number}] = cg::reduce(tile, value, cg::{name}<int>());"
        for number, name in enumerate(OPERATIONS)
    ),
).replace(
    "TILES",
    "\n  ".join(
        f"use_tile<{size}>(x, rank, out + ({number} * 64 + rank) * {3 + len(OPERATIONS)});"
        for number, size in enumerate(SIZES)
    ),
)
TEXT = (
    KERNELS
    + launcher("ranks(int* out, int x, int y, int z)", "1", "dim3(x, y, z)", "out")
    + launcher("coalesced(int* out)", "1", "40")
    + launcher("tiles(const int* x, int* out)", "1", "dim3(4, 8, 2)")
    + launcher("order(const int* x, int* out, int size, int which)", "1", "64")
)


library = Kernels(TEXT, "groups")


@each_target
@pytest.mark.parametrize("shape", [(64, 1, 1), (4, 4, 4), (5, 3, 3)])
def test_groups_know_their_ranks_and_sizes(target, shape):
    threads = math.prod(shape)
    out = integers(target, threads, 23)
    library(target).ranks(out, *shape)
    tiles = -(-threads // 16)
    for rank, found in enumerate(out.tolist()):
        # if only the kernel knows a tile's size, it counts real threads
        some = [rank % 8, min(8, threads - rank // 8 * 8)]
        sixteen = [rank % 16, 16, rank // 16, tiles]
        four = [rank % 4, 4, rank % 16 // 4, 4]
        block = [rank, threads, threads]
        types = block + sixteen + four + four[2:]
        assert found == types + block[:2] + some + some + [1, 0] + four[:2]


@each_target
def test_threads_that_are_together_vote_and_shuffle(target):
    out = integers(target, 40)
    library(target).coalesced(out)
    assert out.tolist() == [1] * 40


@each_target
def test_tiles_vote_and_reduce(target):
    x = torch.tensor([(37 * number) % 91 for number in range(64)], dtype=torch.int32)
    x[8:12] = 9
    out = integers(target, len(SIZES), 64, 3 + len(OPERATIONS))
    library(target).tiles(x.to(device_of(target)), out)
    for (number, size), rank in itertools.product(enumerate(SIZES), range(64)):
        values = x[rank // size * size :][:size].tolist()
        votes = [value % 3 == 0 for value in values]
        ballot = sum(vote << lane for lane, vote in enumerate(votes))
        assert out[number, rank].tolist() == [
            any(votes),
            all(votes),
            ballot - (ballot >> 31 << 32),
            *(functools.reduce(one, values) for one in OPERATIONS.values()),
        ], (size, rank)


def ordered(size: int, which: int) -> list[int]:
    out = integers("checked", 64)
    library().order(torch.arange(64, dtype=torch.int32), out, size, which)
    return out.tolist()


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64])
def test_a_groups_barrier_orders_its_threads_and_another_groups_does_not(size):
    for which in (0, 1):
        assert ordered(size, which) == [rank ^ (size - 1) for rank in range(64)]
    for which in (2, 3):
        found = error_of(ordered, size, which)
        assert found.kind in ("race", "missing-syncwarp", "shared-uninitialised")


@pytest.mark.parametrize("size", [-1, 0, 3, 5, 24, 33, 48])
def test_a_tile_has_a_power_of_two_of_threads(size):
    """A GPU ends the kernel."""
    with pytest.raises(KernelError, match="makes tiles of 1, 2, 4, 8, 16 or 32") as caught:
        ordered(size, 0)
    assert caught.value.kind == "assertion"
