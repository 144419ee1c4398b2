"""How a batch is shared out: equal shares, and the plan that rungs 7 and 8 are given."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from lessons_lib.cuda.inline import read_kernel
from paged_attention.ladder.splits import choose_num_splits, cut_evenly
from paged_attention.ladder.work_plan import (
    TILE_SIZE,
    best_plan,
    choose_heads_at_once,
    choose_plan,
    cost_of,
    deal_rows,
    plan_work,
    tiles_of,
)
from work_items import items_of, rows_and_parts

some = few(60, drawn_anew=200)
LENGTHS = st.lists(
    st.one_of(st.integers(0, 70), st.integers(0, 3000)), min_size=1, max_size=12
)
# heads_at_once, and how many such groups
HEADS = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))


def by_row(length, heads_at_once, groups):
    """Tiles of each row: a sequence's groups of heads lie side by side."""
    return np.repeat(tiles_of(length), groups).tolist()


def sound(plan, lengths, heads):
    """Asserts that each tile has one block, and each part its place. Returns the tiles of each
    block.
    """
    heads_at_once, groups = heads
    assert plan.items.dtype == np.int32 and plan.items.flags.c_contiguous
    assert plan.items[:, 7].min() == -1
    items = plan.items.tolist()
    blocks = [list(items_of(items, block)) for block in range(plan.num_blocks)]
    assert sum(map(len, blocks)) == len(plan.items)  # each item belongs to one block
    shares = [
        sum(max(1, -(-(end - begin) // TILE_SIZE)) for _, _, begin, end, *_ in items)
        for items in blocks
    ]
    assert sum(shares) == sum(by_row(lengths, *heads))
    assert plan.most_tiles == max(shares)
    assert plan.most_parts == max(sum(item[4] >= 0 for item in items) for items in blocks)
    rows, parts = rows_and_parts(blocks, lengths)
    first_heads = range(0, heads_at_once * groups, heads_at_once)
    assert rows == list(product(range(len(lengths)), first_heads))
    assert parts == list(range(plan.num_parts))
    return shares


def test_a_long_sequence_fills_the_card_and_a_full_card_is_not_cut():
    assert choose_num_splits(8, 512, 132) == 16  # 128 blocks of 32 tiles: one wave
    assert choose_num_splits(2048, 8, 132) == choose_num_splits(1, 1, 132) == 1


@some
@given(lengths=LENGTHS, heads=HEADS, num_blocks=st.integers(1, 150))
def test_the_plan_cuts_where_cut_evenly_does(lengths, heads, num_blocks):
    heads_at_once, groups = heads
    plan = plan_work(lengths, heads_at_once * groups, num_blocks, heads_at_once)
    sound(plan, lengths, heads)
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
        assert sorted(
            tuple(item[:4]) for item in items_of(plan.items.tolist(), block)
        ) == sorted(expected)


@some
@given(lengths=LENGTHS, heads=HEADS, data=st.data())
def test_cut_by_rows_a_block_has_so_many_rows_or_a_row_so_many_blocks(lengths, heads, data):
    rows = by_row(lengths, *heads)
    divisors = [n for n in range(1, len(rows)) if len(rows) % n == 0]
    num_blocks = data.draw(st.sampled_from([*divisors, *(len(rows) * n for n in range(1, 6))]))
    plan = plan_work(lengths, heads[0] * heads[1], num_blocks, heads[0], by_rows=True)
    shares = sound(plan, lengths, heads)
    if num_blocks <= len(rows):
        each = len(rows) // num_blocks
        firsts = range(0, len(rows), each)
        assert shares == [sum(rows[first : first + each]) for first in firsts]
        assert plan.num_parts == 0
    else:
        pieces = [cut_evenly([tiles], num_blocks // len(rows)) for tiles in rows]
        assert shares == [
            end - first for of_row in pieces for piece in of_row for _, first, end in piece
        ]


@some
@given(lengths=LENGTHS, heads=HEADS)
def test_rows_are_dealt_out_whole_and_the_longest_first(lengths, heads):
    plan = deal_rows(lengths, heads[0] * heads[1], heads[0])
    shares = sound(plan, lengths, heads)
    assert shares == sorted(by_row(lengths, *heads), reverse=True)
    assert plan.num_parts == 0


@some
@given(
    lengths=st.lists(st.sampled_from([0, 1, 16, 600, 3000, 20_000]), min_size=1, max_size=20),
    num_kv_heads=st.integers(1, 16),
    num_warps=st.sampled_from([4, 8]),
    multiprocessors=st.sampled_from([1, 4, 20]),
)
def test_what_is_chosen_is_sound_and_equal_shares_are_cut_in_the_quickest_way(
    lengths, num_kv_heads, num_warps, multiprocessors
):
    """Anywhere, for as many blocks as keep the memory busy; or into whole rows, or pieces."""
    heads, plan = choose_plan(lengths, num_kv_heads, num_warps, multiprocessors)
    assert num_kv_heads % heads == 0 and num_warps % heads == 0
    sound(plan, lengths, (heads, num_kv_heads // heads))
    shared = choose_heads_at_once(lengths, num_kv_heads, num_warps, multiprocessors)
    num_rows, busy = len(lengths) * num_kv_heads // shared, max(1, int(0.8 * multiprocessors))
    ways = [plan_work(lengths, num_kv_heads, busy, shared)]
    for num_blocks in (num_rows, multiprocessors // num_rows * num_rows):
        if 0 < num_blocks <= multiprocessors:
            ways.append(plan_work(lengths, num_kv_heads, num_blocks, shared, by_rows=True))
    equal = best_plan(lengths, num_kv_heads, shared, multiprocessors)
    sound(equal, lengths, (shared, num_kv_heads // shared))
    times = [cost_of(each, shared, multiprocessors, busy) for each in (equal, *ways)]
    assert times[0] == min(times)


@pytest.mark.parametrize("rows_each, are_dealt", [(7, True), (8, True), (9, False)])
def test_rows_are_dealt_out_where_a_multiprocessor_has_at_most_eight(rows_each, are_dealt):
    lengths = [(600 - row) * TILE_SIZE for row in range(4 * rows_each)]
    _, plan = choose_plan(lengths, 1, 1, 4)
    assert (plan.num_blocks == len(lengths) and plan.num_parts == 0) == are_dealt


@some
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


def test_a_tile_is_the_kernels():
    assert f"constexpr int tile_size = {TILE_SIZE};" in read_kernel("ladder/tile.cuh")
    assert tiles_of([0, 1, 16, 17]).tolist() == [1, 1, 1, 2]
    # whatever numbers the lengths are
    assert tiles_of(np.array([200], dtype=np.uint8)).tolist() == [13]
