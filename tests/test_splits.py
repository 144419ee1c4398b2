"""How a batch is shared out: the number of splits, equal shares, and the plan that rungs 7 and 8 are given."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.splits import SPLIT_COST, choose_num_splits, cut_evenly
from paged_attention.work_plan import TILE_SIZE, best_plan, choose_heads_at_once, plan_work, tiles_of

few = settings(max_examples=200, deadline=None, derandomize=True)
LENGTHS = st.lists(st.one_of(st.integers(0, 70), st.integers(0, 3000)), min_size=1, max_size=12)
HEADS = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))  # heads_at_once, and how many such groups


def by_row(length, heads_at_once, groups):
    """Tiles of each row: a sequence's groups of heads lie side by side."""
    return np.repeat(tiles_of(length), groups).tolist()


def items_of(plan, block):
    """A block's items in the order in which it comes to them."""
    item = block
    while item >= 0:
        yield plan.items[item].tolist()
        item = plan.items[item, 7]


@few
@given(lengths=LENGTHS, heads=HEADS, num_blocks=st.integers(1, 150))
def test_the_plan_cuts_where_cut_evenly_does(lengths, heads, num_blocks):
    heads_at_once, groups = heads
    plan = plan_work(lengths, heads_at_once * groups, num_blocks, heads_at_once)
    rows = by_row(lengths, *heads)
    assert plan.num_blocks == min(num_blocks, sum(rows))
    for block, pieces in enumerate(cut_evenly(rows, plan.num_blocks)):
        expected = [(row // groups, row % groups * heads_at_once, first * TILE_SIZE,
                     min(end * TILE_SIZE, lengths[row // groups])) for row, first, end in pieces]
        assert sorted(tuple(item[:4]) for item in items_of(plan, block)) == sorted(expected)


def sound(plan, lengths, heads):
    """Asserts that each tile has one block, and each part its place. Returns the tiles of each block."""
    heads_at_once, groups = heads
    assert plan.items.dtype == np.int32 and plan.items.flags.c_contiguous
    blocks = [list(items_of(plan, block)) for block in range(plan.num_blocks)]
    assert sum(map(len, blocks)) == len(plan.items)  # each item belongs to one block
    shares = [sum(max(1, -(-(end - begin) // TILE_SIZE)) for _, _, begin, end, *_ in items) for items in blocks]
    rows = by_row(lengths, *heads)
    assert sum(shares) == sum(rows)
    assert plan.most_tiles == max(shares)
    assert plan.most_parts == max(sum(item[4] >= 0 for item in items) for items in blocks)
    for items in blocks:  # parts first, then what is the block's own
        assert [item[4] >= 0 for item in items] == sorted([item[4] >= 0 for item in items], reverse=True)
    pieces = {}
    for item in plan.items.tolist():
        pieces.setdefault((item[0], item[1]), []).append(item)
    assert len(pieces) == len(rows)
    parts = []
    for (seq, _), of_row in pieces.items():
        of_row.sort(key=lambda item: item[2])
        assert of_row[0][2] == 0 and of_row[-1][3] == lengths[seq]
        assert all(before[3] == after[2] and before[3] % TILE_SIZE == 0 for before, after in pairwise(of_row))
        assert {item[6] for item in of_row} == {len(of_row)}
        if len(of_row) == 1:
            assert of_row[0][4:6] == [-1, -1]
        else:
            first = of_row[0][4]
            assert [item[4] for item in of_row] == list(range(first, first + len(of_row)))
            assert {item[5] for item in of_row} == {first}
            parts += [item[4] for item in of_row]
    assert sorted(parts) == list(range(plan.num_parts))
    assert {item[1] for item in plan.items.tolist()} == set(range(0, heads_at_once * groups, heads_at_once))
    return shares


@few
@given(lengths=LENGTHS, heads=HEADS, num_blocks=st.integers(1, 150))
def test_each_tile_has_one_block_and_no_block_more_than_others(lengths, heads, num_blocks):
    shares = sound(plan_work(lengths, heads[0] * heads[1], num_blocks, heads[0]), lengths, heads)
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
        assert shares == [sum(rows[first : first + each]) for first in range(0, len(rows), each)] and plan.num_parts == 0
    else:
        pieces = [cut_evenly([tiles], num_blocks // len(rows)) for tiles in rows]
        assert shares == [end - first for of_row in pieces for piece in of_row for _, first, end in piece]


@few
@given(lengths=LENGTHS, num_kv_heads=st.integers(1, 16), num_warps=st.sampled_from([4, 8]),
       multiprocessors=st.sampled_from([1, 4, 108, 132]))
def test_what_is_chosen_fits(lengths, num_kv_heads, num_warps, multiprocessors):
    heads_at_once = choose_heads_at_once(lengths, num_kv_heads, num_warps, multiprocessors)
    assert num_kv_heads % heads_at_once == 0 and num_warps % heads_at_once == 0
    plan = best_plan(lengths, num_kv_heads, heads_at_once, multiprocessors)
    sound(plan, lengths, (heads_at_once, num_kv_heads // heads_at_once))
    assert plan.num_blocks <= multiprocessors


@few
@given(num_tiles=st.lists(st.integers(1, 40), min_size=1, max_size=10), num_blocks=st.integers(1, 60))
def test_shares_are_even_and_in_order(num_tiles, num_blocks):
    shares = cut_evenly(num_tiles, num_blocks)
    assert len(shares) == num_blocks
    sizes = [sum(end - first for _, first, end in pieces) for pieces in shares]
    assert max(sizes) - min(sizes) <= 1
    tiles = [(row, tile) for pieces in shares for row, first, end in pieces for tile in range(first, end)]
    assert tiles == [(row, tile) for row, count in enumerate(num_tiles) for tile in range(count)]
    assert all(first < end for pieces in shares for _, first, end in pieces)


@few
@given(num_rows=st.integers(1, 300), num_tiles=st.integers(1, 200), num_multiprocessors=st.sampled_from([1, 4, 108, 132]))
def test_the_number_of_splits_is_the_quickest(num_rows, num_tiles, num_multiprocessors):
    times = [-(-num_rows * splits // num_multiprocessors) * (-(-num_tiles // splits) + SPLIT_COST)
             for splits in range(1, num_tiles + 1)]
    assert choose_num_splits(num_rows, num_tiles, num_multiprocessors) == 1 + times.index(min(times))


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
