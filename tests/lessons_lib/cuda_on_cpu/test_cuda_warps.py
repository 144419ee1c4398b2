"""Lanes of a warp: shuffles against what CUDA's documents say, votes, and barriers of some
lanes.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_text import Kernels, each_target, error_of, integers, launcher, on_cpu
from examples import few
from lessons_lib import KernelError

INDEX, UP, DOWN, XOR = range(4)
ALL = 0xFFFFFFFF

KERNELS = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void shuffle_kernel(int kind, unsigned mask, int distance, int width, int* moved) {
  int lane = threadIdx.x, result = -1;
  if (!(mask >> lane & 1)) return;
  if (kind == 0) result = __shfl_sync(mask, 100 + lane, distance, width);  // the first of four
  if (kind == 1) result = __shfl_up_sync(mask, 100 + lane, distance, width);
  if (kind == 2) result = __shfl_down_sync(mask, 100 + lane, distance, width);
  if (kind == 3) result = __shfl_xor_sync(mask, 100 + lane, distance, width);
  moved[lane] = result;
}
template <unsigned size>
__global__ void tile_shuffle_kernel(int kind, int distance, int* moved) {
  auto tile = cg::tiled_partition<size>(cg::this_thread_block());
  int lane = threadIdx.x, result = -1;
  if (kind == 0) result = tile.shfl(100 + lane, distance);
  if (kind == 1) result = tile.shfl_up(100 + lane, distance);
  if (kind == 2) result = tile.shfl_down(100 + lane, distance);
  if (kind == 3) result = tile.shfl_xor(100 + lane, distance);
  moved[lane] = result;
}
__global__ void two_lines_kernel(unsigned lower, unsigned upper, int* moved) {
  int lane = threadIdx.x, result;
  if (lane < 16)
    result = __shfl_xor_sync(lower, lane, 1);  // the lower half
  else
    result = __shfl_xor_sync(upper, lane, 1);  // the upper half
  moved[lane] = result;
}
__global__ void leave_kernel(int first, int left, int* out) {
  __shared__ int numbers[64];
  int lane = threadIdx.x % 32;
  if (lane >= first && lane < first + left) return;
  numbers[threadIdx.x] = lane;
  __syncwarp();
  int other = (lane + 1) % 32;
  while (other >= first && other < first + left) other = (other + 1) % 32;
  out[threadIdx.x] = numbers[threadIdx.x / 32 * 32 + other];
}
__global__ void vote_kernel(const int* predicates, unsigned mask, int* votes) {
  int lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  votes[3 * lane] = __ballot_sync(mask, predicates[lane]);
  votes[3 * lane + 1] = __any_sync(mask, predicates[lane]);
  votes[3 * lane + 2] = __all_sync(mask, predicates[lane]);
}
"""
SIZES = (1, 2, 4, 8, 16, 32)
TEXT = KERNELS + "".join(
    [
        launcher(
            "shuffle(int kind, unsigned mask, int far, int width, int* moved, int threads)",
            threads="threads",
            arguments="kind, mask, far, width, moved",
        ),
        *(
            launcher(
                f"tile_shuffle_{size}(int kind, int distance, int* moved)",
                threads="32",
                kernel=f"tile_shuffle_kernel<{size}>",
            )
            for size in SIZES
        ),
        launcher("two_lines(unsigned lower, unsigned upper, int* moved)", threads="32"),
        launcher("leave(int first, int left, int* found)", threads="64"),
        launcher("vote(const int* predicates, unsigned mask, int* votes)", threads="32"),
    ]
)


library = Kernels(TEXT, "warps")


def zeros(target: str) -> torch.Tensor:
    return integers(target, 32)


def tile_shuffle(target: str, size: int, kind: int, distance: int) -> list[int]:
    moved = zeros(target)
    getattr(library(target), f"tile_shuffle_{size}")(kind, distance, moved)
    return moved.tolist()


def source_lane(kind: int, lane: int, distance: int, width: int) -> int:
    """The lane that a shuffle reads, as the PTX manual has it: of the distance five bits
    count, and a lane that would read outside of its group of `width` lanes reads itself. (xor
    may read from a group before its own.)
    """
    first = lane & -width
    last = lane | (width - 1)
    distance = distance & 31
    if kind == INDEX:
        return first | (distance & (width - 1))
    source = (
        lane - distance if kind == UP else lane + distance if kind == DOWN else lane ^ distance
    )
    inside = source >= first if kind == UP else source <= last
    return source if inside else lane


def shuffled(kind: int, distance: int, width: int) -> list[int]:
    return [100 + source_lane(kind, lane, distance, width) for lane in range(32)]


kinds = st.sampled_from([INDEX, UP, DOWN, XOR])
widths = st.sampled_from(SIZES)
distances = st.integers(-40, 70)
masks = st.integers(1, ALL) | st.sampled_from(
    [ALL, 0xFFFF, 0xFFFF0000, 0x0F0F0F0F, 0x80000001]
)


@each_target
@pytest.mark.parametrize("kind", [INDEX, UP, DOWN, XOR])
@pytest.mark.parametrize("width", SIZES)
def test_a_shuffle_of_all_lanes_reads_where_cuda_says(target, kind, width):
    for distance in (*range(-3, 36), 47, 63, 64, 65):
        moved = zeros(target)
        library(target).shuffle(kind, ALL, distance, width, moved, 32)
        assert moved.tolist() == shuffled(kind, distance, width), (distance, width)


@on_cpu
@given(kinds, masks, distances, widths, st.integers(1, 32))
@example(UP, 0xFFFF, 1, 16, 32)
@example(XOR, 0xFFFF0000, 16, 16, 32)
@example(DOWN, ALL, 1, 32, 31)
@few(30, drawn_anew=60)
def test_a_shuffle_of_some_lanes_reads_these_or_names_the_one_that_is_missing(
    target, kind, mask, distance, width, threads
):
    """`threads`: of the block.

    No lane waits for a lane of the mask that does not exist, but it cannot be read.
    """
    here = [lane for lane in range(threads) if mask >> lane & 1]
    wanted = {lane: source_lane(kind, lane, distance, width) for lane in here}
    moved = torch.full((32,), -5, dtype=torch.int32)
    missing = {lane: source for lane, source in wanted.items() if source not in here}
    if not missing:
        library(target).shuffle(kind, mask, distance, width, moved, threads)
        assert moved.tolist() == [
            100 + wanted[lane] if lane in here else -5 for lane in range(32)
        ]
        return
    found = error_of(library(target).shuffle, kind, mask, distance, width, moved, threads)
    lane = found.thread[0]
    assert found.kind == "absent-lane" and lane in missing
    assert found.line == library.line("the first of four") + kind
    assert f"asks for the value of lane {missing[lane]}, which does not take part" in str(
        found
    )


@each_target
@pytest.mark.parametrize("size", SIZES)
def test_a_tile_shuffles_as_a_warp_does_with_its_size_for_width(target, size):
    for kind in range(4):
        for distance in range(size if kind == XOR else size + 3):
            moved = tile_shuffle(target, size, kind, distance)
            assert moved == shuffled(kind, distance, size), (kind, distance)


@on_cpu
@pytest.mark.parametrize("size", SIZES[:-1])
def test_a_tile_that_reads_from_the_tile_before_is_told(target, size):
    """What a GPU gives then, if anything, is luck: that lane calls with another mask."""
    words = rf"Lane {size} .* calls tile.shfl_xor .* the value of lane 0, which does not"
    with pytest.raises(KernelError, match=words):
        tile_shuffle(target, size, XOR, size)


@on_cpu
def test_the_same_shuffle_on_two_lines_is_two_meetings(target):
    """GPUs since Volta let lanes meet from two lines. Here that is reported (README.md)."""
    moved = torch.zeros(32, dtype=torch.int32)
    library(target).two_lines(0xFFFF, 0xFFFF0000, moved)
    assert moved.tolist() == [lane ^ 1 for lane in range(32)]
    for seed in range(4):
        library(target).options(seed=seed)
        words = "with the mask 0xffffffff, and waits for lanes 16 to 31"
        with pytest.raises(KernelError, match=words) as caught:
            library(target).two_lines(ALL, ALL, moved)
        found = caught.value
        assert (found.kind, found.thread) == ("absent-lane", (0, 0, 0))
        assert found.line == library.line("the lower half")
        assert f"line {library.line('the upper half')}:" in str(found)
        assert "waits at __shfl_xor_sync instead" in str(found)
    library(target).options()


@on_cpu
@pytest.mark.parametrize("first, left", [(0, 1), (31, 1), (20, 12), (0, 31), (5, 20), (3, 0)])
def test_lanes_that_have_returned_are_not_waited_for(target, first, left):
    gone = range(first, first + left)
    lanes = [lane for lane in range(32) if lane not in gone]
    after = {lane: lanes[(number + 1) % len(lanes)] for number, lane in enumerate(lanes)}
    for seed in range(5):
        library(target).options(seed=seed)
        out = torch.full((64,), -5, dtype=torch.int32)
        library(target).leave(first, left, out)
        assert out.tolist() == [after.get(lane, -5) for lane in range(32)] * 2
    library(target).options()


@on_cpu
@given(
    masks, st.lists(st.sampled_from([0, 0, 1, 2, -1, 256, -(2**31)]), min_size=32, max_size=32)
)
@settings(max_examples=40)
def test_votes_count_the_lanes_of_the_mask(target, mask, predicates):
    votes = torch.full((32, 3), -5, dtype=torch.int32)
    library(target).vote(torch.tensor(predicates, dtype=torch.int32), mask, votes)
    ballot = sum(1 << lane for lane in range(32) if mask >> lane & 1 and predicates[lane])
    signed = ballot - (1 << 32) * (ballot >> 31)
    here = torch.tensor([mask >> lane & 1 for lane in range(32)], dtype=torch.bool)
    expected = torch.tensor([signed, int(ballot != 0), int(ballot == mask)], dtype=torch.int32)
    assert torch.equal(votes, torch.where(here[:, None], expected, -5).int())
