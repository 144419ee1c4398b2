"""How a batch is shared out: the number of splits, equal shares, and the plan that rungs 7 and
8 are given.
"""

import time
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_lib.inline import read_kernel
from paged_attention.splits import SPLIT_COST, choose_num_splits, cut_evenly
from paged_attention.work_plan import (
    TILE_SIZE,
    best_plan,
    choose_heads_at_once,
    choose_plan,
    cost_of,
    deal_rows,
    dealt_time,
    plan_work,
    tiles_of,
)

few = settings(max_examples=200, deadline=None, derandomize=True)
LENGTHS = st.lists(
    st.one_of(st.integers(0, 70), st.integers(0, 3000)), min_size=1, max_size=12
)
# heads_at_once, and how many such groups
HEADS = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))


def by_row(length, heads_at_once, groups):
    """Tiles of each row: a sequence's groups of heads lie side by side."""
    return np.repeat(tiles_of(length), groups).tolist()


def items_of(plan, block):
    """A block's items in the order in which it comes to them."""
    item = block
    for _ in plan.items:
        yield plan.items[item].tolist()
        item = plan.items[item, 7]
        if item < 0:
            return
    pytest.fail(f"the items of block {block} have no end")


@few
@given(lengths=LENGTHS, heads=HEADS, num_blocks=st.integers(1, 150))
def test_the_plan_cuts_where_cut_evenly_does(lengths, heads, num_blocks):
    heads_at_once, groups = heads
    plan = plan_work(lengths, heads_at_once * groups, num_blocks, heads_at_once)
    rows = by_row(lengths, *heads)
    assert plan.num_blocks == min(num_blocks, sum(rows))
    for block, pieces in enumerate(cut_evenly(rows, plan.num_blocks)):
        expected = [
            (
                row // groups,
                row % groups * heads_at_once,
                first * TILE_SIZE,
                min(end * TILE_SIZE, lengths[row // groups]),
            )
            for row, first, end in pieces
        ]
        assert sorted(tuple(item[:4]) for item in items_of(plan, block)) == sorted(expected)


def sound(plan, lengths, heads):
    """Asserts that each tile has one block, and each part its place. Returns the tiles of each
    block.
    """
    heads_at_once, groups = heads
    assert (
        plan.items.dtype == np.int32
        and plan.items.flags.c_contiguous
        and plan.items[:, 7].min() == -1
    )
    blocks = [list(items_of(plan, block)) for block in range(plan.num_blocks)]
    assert sum(map(len, blocks)) == len(plan.items)  # each item belongs to one block
    shares = [
        sum(max(1, -(-(end - begin) // TILE_SIZE)) for _, _, begin, end, *_ in items)
        for items in blocks
    ]
    rows = by_row(lengths, *heads)
    assert sum(shares) == sum(rows)
    assert plan.most_tiles == max(shares)
    assert plan.most_parts == max(sum(item[4] >= 0 for item in items) for items in blocks)
    for items in blocks:  # parts first, then what is the block's own
        assert [item[4] >= 0 for item in items] == sorted(
            [item[4] >= 0 for item in items], reverse=True
        )
    pieces = {}
    for item in plan.items.tolist():
        pieces.setdefault((item[0], item[1]), []).append(item)
    assert len(pieces) == len(rows)
    parts = []
    for (seq, _), of_row in pieces.items():
        of_row.sort(key=lambda item: item[2])
        assert of_row[0][2] == 0 and of_row[-1][3] == lengths[seq]
        assert all(
            before[3] == after[2] and before[3] % TILE_SIZE == 0
            for before, after in pairwise(of_row)
        )
        assert {item[6] for item in of_row} == {len(of_row)}
        if len(of_row) == 1:
            assert of_row[0][4:6] == [-1, -1]
        else:
            first = of_row[0][4]
            assert [item[4] for item in of_row] == list(range(first, first + len(of_row)))
            assert {item[5] for item in of_row} == {first}
            parts += [item[4] for item in of_row]
    assert sorted(parts) == list(range(plan.num_parts))
    assert {item[1] for item in plan.items.tolist()} == set(
        range(0, heads_at_once * groups, heads_at_once)
    )
    return shares


@few
@given(lengths=LENGTHS, heads=HEADS, num_blocks=st.integers(1, 150))
def test_each_tile_has_one_block_and_no_block_more_than_others(lengths, heads, num_blocks):
    shares = sound(
        plan_work(lengths, heads[0] * heads[1], num_blocks, heads[0]), lengths, heads
    )
    assert max(shares) - min(shares) <= 1


@few
@given(lengths=LENGTHS, heads=HEADS, data=st.data())
def test_cut_by_rows_a_block_has_so_many_rows_or_a_row_so_many_blocks(lengths, heads, data):
    rows = by_row(lengths, *heads)
    divisors = [n for n in range(1, len(rows)) if len(rows) % n == 0]
    num_blocks = data.draw(st.sampled_from([*divisors, *(len(rows) * n for n in range(1, 6))]))
    plan = plan_work(lengths, heads[0] * heads[1], num_blocks, heads[0], by_rows=True)
    shares = sound(plan, lengths, heads)
    if num_blocks <= len(rows):
        each = len(rows) // num_blocks
        assert (
            shares == [sum(rows[first : first + each]) for first in range(0, len(rows), each)]
            and plan.num_parts == 0
        )
    else:
        pieces = [cut_evenly([tiles], num_blocks // len(rows)) for tiles in rows]
        assert shares == [
            end - first for of_row in pieces for piece in of_row for _, first, end in piece
        ]


@few
@given(
    lengths=LENGTHS,
    num_kv_heads=st.integers(1, 16),
    num_warps=st.sampled_from([4, 8]),
    multiprocessors=st.sampled_from([1, 4, 108, 132]),
)
def test_what_is_chosen_fits(lengths, num_kv_heads, num_warps, multiprocessors):
    heads_at_once = choose_heads_at_once(lengths, num_kv_heads, num_warps, multiprocessors)
    assert num_kv_heads % heads_at_once == 0 and num_warps % heads_at_once == 0
    plan = best_plan(lengths, num_kv_heads, heads_at_once, multiprocessors)
    sound(plan, lengths, (heads_at_once, num_kv_heads // heads_at_once))
    assert plan.num_blocks <= multiprocessors


# the longest row that is not worth cutting, and one that is
SHORT, LONG = 64 * TILE_SIZE, 64 * TILE_SIZE + 1


@pytest.mark.parametrize(
    "lengths, num_kv_heads, num_warps, multiprocessors, expected",
    [
        # 40 rows find room at once, and none is worth cutting
        ([SHORT] * 5, 8, 8, 132, 1),
        # one is: pairs leave 20 rows, more than an eighth of 132
        ([LONG] + [1] * 4, 8, 8, 132, 2),
        ([LONG] + [1] * 3, 8, 8, 132, 1),  # 16 rows are less
        ([SHORT] * 33, 4, 8, 132, 1),  # 132 rows, as many as there are multiprocessors
        ([SHORT] * 34, 4, 8, 132, 2),
        # 6 rows of all heads: 1.5 for each of 4 multiprocessors
        ([1] * 6, 8, 8, 4, 8),
        ([1] * 5, 8, 8, 4, 2),
        ([1] * 3, 8, 4, 4, 4),  # the same with 4 warps in a block
        ([1] * 6, 12, 8, 4, 2),  # 8 warps cannot share 12 heads
        ([LONG] * 2, 2, 8, 16, 2),  # 2 rows of pairs: an eighth of 16
        ([LONG], 2, 8, 16, 1),
        ([LONG] * 10, 3, 8, 4, 1),  # 3 heads have no pairs
        ([LONG] * 10, 1, 8, 4, 1),
    ],
)
def test_heads_share_a_block_where_rows_are_many(
    lengths, num_kv_heads, num_warps, multiprocessors, expected
):
    assert choose_heads_at_once(lengths, num_kv_heads, num_warps, multiprocessors) == expected


def cost(shares, rows, heads_at_once, multiprocessors, busy_blocks):
    """What a plan is expected to take: its fullest block's tiles, and 40 for each part that a
    block hands over. Where more blocks read at once than keep the memory busy, each is slower.
    """
    shares = [pieces for pieces in shares if pieces]
    most_tiles = max(sum(end - first for _, first, end in pieces) for pieces in shares)
    most_parts = max(
        sum(end - first < rows[row] for row, first, end in pieces) for pieces in shares
    )
    tiles = most_tiles * heads_at_once * max(len(shares), busy_blocks)
    return tiles + 40 * most_parts * multiprocessors


@few
@given(
    lengths=st.lists(st.sampled_from([0, 1, 16, 600, 3000, 20_000]), min_size=1, max_size=12),
    heads=HEADS,
    multiprocessors=st.integers(1, 40),
    busy=st.sampled_from([0.3, 0.8, 1.0, 2.0]),
)
def test_the_plan_is_the_cheapest(lengths, heads, multiprocessors, busy):
    rows = by_row(lengths, *heads)
    limit = max(1, int(busy * multiprocessors))
    whole = max(n for n in range(1, multiprocessors + 1) if len(rows) % n == 0)
    each = len(rows) // whole
    ways = [
        [
            [(row, 0, rows[row]) for row in range(first, first + each)]
            for first in range(0, len(rows), each)
        ],
        cut_evenly(rows, min(limit, sum(rows))),
    ]
    if len(rows) <= multiprocessors:
        pieces = multiprocessors // len(rows)
        ways.append(
            [
                [(row, first, end)]
                for row, tiles in enumerate(rows)
                for ((_, first, end),) in filter(None, cut_evenly([tiles], pieces))
            ]
        )
    plan = best_plan(lengths, heads[0] * heads[1], heads[0], multiprocessors, busy)
    assert cost_of(plan, heads[0], multiprocessors, limit) == min(
        cost(shares, rows, heads[0], multiprocessors, limit) for shares in ways
    )


@few
@given(lengths=LENGTHS, heads=HEADS)
def test_rows_are_dealt_out_whole_and_the_longest_first(lengths, heads):
    plan = deal_rows(lengths, heads[0] * heads[1], heads[0])
    shares = sound(plan, lengths, heads)
    assert shares == sorted(by_row(lengths, *heads), reverse=True)
    assert plan.num_parts == 0


@few
@given(
    times=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    multiprocessors=st.integers(1, 8),
)
def test_a_row_goes_to_the_multiprocessor_that_is_free_first(times, multiprocessors):
    busy_until = [0] * multiprocessors
    for row_time in times:
        busy_until[busy_until.index(min(busy_until))] += row_time
    assert dealt_time(times, multiprocessors) == max(busy_until)


@few
@given(
    lengths=st.lists(st.sampled_from([0, 1, 16, 600, 3000, 20_000]), min_size=1, max_size=20),
    num_kv_heads=st.integers(1, 16),
    num_warps=st.sampled_from([4, 8]),
    multiprocessors=st.sampled_from([1, 4, 20]),
)
def test_what_is_chosen_is_the_quickest(lengths, num_kv_heads, num_warps, multiprocessors):
    """Equal shares, or rows dealt out: 4 to begin one, and 2 for each warp's state."""
    chosen_heads, plan = choose_plan(lengths, num_kv_heads, num_warps, multiprocessors)
    groups = num_kv_heads // chosen_heads
    assert chosen_heads * groups == num_kv_heads and num_warps % chosen_heads == 0
    sound(plan, lengths, (chosen_heads, groups))
    shared = choose_heads_at_once(lengths, num_kv_heads, num_warps, multiprocessors)
    equal = best_plan(lengths, num_kv_heads, shared, multiprocessors)
    busy_blocks = max(1, int(0.8 * multiprocessors))
    times = {0: cost_of(equal, shared, multiprocessors, busy_blocks) / multiprocessors}
    for heads in (1, 2, 4, 8):
        num_rows = len(lengths) * num_kv_heads // heads
        if num_warps % heads or num_kv_heads % heads or num_rows > 8 * multiprocessors:
            continue
        rows = sorted(by_row(lengths, heads, num_kv_heads // heads), reverse=True)
        times[heads] = dealt_time(
            [tiles * heads + 4 + 2 * num_warps / heads for tiles in rows], multiprocessors
        )
    quickest = min(times.values())
    if times[0] == quickest:
        assert (chosen_heads, plan.items.tolist()) == (shared, equal.items.tolist())
    else:
        assert times[chosen_heads] == quickest
        assert plan.num_blocks == len(lengths) * groups


def test_unequal_rows_are_dealt_out_and_few_are_cut():
    unequal = [2048 - 8 * n for n in range(240)]
    heads, plan = choose_plan(unequal, 8, 8, 132)
    assert plan.num_blocks == 240 * 8 // heads and plan.num_parts == 0
    heads, plan = choose_plan([32_768], 8, 8, 132)
    assert (heads, plan.num_blocks, plan.num_parts) == (1, 128, 128)
    for lengths, num_kv_heads in product(([1024] * 64, [512] * 8), (8,)):
        _, plan = choose_plan(lengths, num_kv_heads, 8, 132)
        assert plan.num_parts == 0 and plan.num_blocks <= 132


@pytest.mark.parametrize("rows_each, are_dealt", [(7, True), (8, True), (9, False)])
def test_rows_are_dealt_out_where_a_multiprocessor_has_at_most_eight(rows_each, are_dealt):
    lengths = [(600 - row) * TILE_SIZE for row in range(4 * rows_each)]
    _, plan = choose_plan(lengths, 1, 1, 4)
    assert (plan.num_blocks == len(lengths) and plan.num_parts == 0) == are_dealt


def chosen(tiles, num_kv_heads=1, heads_at_once=1, multiprocessors=2, **busy):
    """Blocks and parts of the best plan for rows with these numbers of tiles."""
    plan = best_plan(
        [n * TILE_SIZE for n in tiles], num_kv_heads, heads_at_once, multiprocessors, **busy
    )
    return plan.num_blocks, plan.num_parts


def test_a_row_is_cut_where_its_parts_pay():
    # two halves of 40, and 40 for the handing over: no gain
    assert chosen([80], busy=1.0) == (1, 0)
    assert chosen([82], busy=1.0) == (2, 2)
    # of two heads at once a tile takes twice as long
    assert chosen([40], 2, 2, busy=1.0) == (1, 0)
    assert chosen([42], 2, 2, busy=1.0) == (2, 2)


def test_rows_that_come_out_even_stay_whole():
    assert chosen([500] * 4, multiprocessors=4) == (4, 0)
    assert chosen([5] * 6, multiprocessors=4) == (3, 0)
    assert chosen([30] + [1] * 7, multiprocessors=8) == (8, 0)


def test_few_long_rows_are_cut_for_as_many_blocks_as_keep_the_memory_busy():
    assert chosen([100_000, 90_000], multiprocessors=132) == (105, 106)  # 0.8 for each
    # equal pieces: a block hands over one part, not two, and all of them have work
    assert chosen([100_000], multiprocessors=132) == (132, 132)
    assert chosen([2600] * 4, multiprocessors=132) == (132, 132)
    assert chosen([3], multiprocessors=1) == (1, 0)


@few
@given(
    num_tiles=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    num_blocks=st.integers(1, 60),
)
def test_shares_are_even_and_in_order(num_tiles, num_blocks):
    shares = cut_evenly(num_tiles, num_blocks)
    assert len(shares) == num_blocks
    sizes = [sum(end - first for _, first, end in pieces) for pieces in shares]
    assert max(sizes) - min(sizes) <= 1
    tiles = [
        (row, tile)
        for pieces in shares
        for row, first, end in pieces
        for tile in range(first, end)
    ]
    assert tiles == [
        (row, tile) for row, count in enumerate(num_tiles) for tile in range(count)
    ]
    assert all(first < end for pieces in shares for _, first, end in pieces)


@few
@given(
    num_rows=st.integers(1, 300),
    num_tiles=st.integers(1, 200),
    num_multiprocessors=st.sampled_from([1, 4, 108, 132]),
)
def test_the_number_of_splits_is_the_quickest(num_rows, num_tiles, num_multiprocessors):
    times = [
        -(-num_rows * splits // num_multiprocessors) * (-(-num_tiles // splits) + SPLIT_COST)
        for splits in range(1, num_tiles + 1)
    ]
    assert choose_num_splits(num_rows, num_tiles, num_multiprocessors) == 1 + times.index(
        min(times)
    )


def test_a_split_costs_as_much_as_four_tiles():
    """5 rows of 15 tiles on 4 multiprocessors: in 2 splits 3 waves of 8 tiles, in 3 splits 4
    waves of 5.
    """
    # 3 * (8 + 4) against 4 * (5 + 4); at 3 for a split, 33 against 32
    assert choose_num_splits(5, 15, 4) == 2
    # 3 * (7 + 4) against 2 * (13 + 4), whole; at 5 for a split, 36 each
    assert choose_num_splits(5, 13, 4) == 2


def test_a_tile_is_the_kernels():
    assert f"constexpr int tile_size = {TILE_SIZE};" in read_kernel("ladder/tile.cuh")
    assert tiles_of([0, 1, 16, 17]).tolist() == [1, 1, 1, 2]
    # whatever numbers the lengths are
    assert tiles_of(np.array([200], dtype=np.uint8)).tolist() == [13]


def test_one_long_sequence_and_a_full_card():
    assert choose_num_splits(8, 512, 132) == 16  # 128 blocks of 32 tiles: one wave
    assert choose_num_splits(2048, 8, 132) == 1
    assert choose_num_splits(1, 1, 132) == 1


@pytest.mark.alone
def test_a_thousand_sequences_are_planned_in_no_time():
    lengths = np.random.default_rng(0).integers(0, 32_768, 1024)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        plan = best_plan(lengths, 8, 1, 132)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.020, times
    assert plan.num_blocks <= 132 and len(plan.items) >= 8 * 1024
