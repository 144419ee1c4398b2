"""How the rows of prompts are divided among items, and what is made for a batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paged_attention.ladder.decode import Shape
from paged_attention.ladder.rungs import SHARED_BYTES_ON_CPU
from paged_attention.prefill.plan import plan_all_tiles, plan_needed_tiles
from paged_attention.prefill.tile_sizes import TileSizes, tile_sizes

HALF = torch.float16
SMALL = TileSizes(rows=4, keys=2, few_rows=1)


def needed(lens, num_kv_heads, num_slots, most_tiles=None):
    q_lens, kv_lens = np.array(lens).T
    return plan_needed_tiles(q_lens, kv_lens, 1, SMALL, num_kv_heads, num_slots, most_tiles)


@pytest.mark.parametrize(
    "sizes, longest", [(TileSizes(128, 64, 16), 150), (TileSizes(16, 9, 1), 20)], ids=str
)
@given(
    data=st.data(),
    heads=st.integers(1, 16),
    most_tiles=st.sampled_from([None, 1, 3]),
    num_slots=st.sampled_from([1, 8, 264]),
)
def test_a_plan_has_each_needed_tile_once(sizes, longest, data, heads, most_tiles, num_slots):
    pairs = st.tuples(st.integers(0, longest), st.integers(0, longest))
    lens = data.draw(st.lists(pairs.map(lambda pair: (pair[0], sum(pair))), max_size=6))
    q_lens, kv_lens = (np.array([pair[i] for pair in lens], np.int64) for i in (0, 1))
    whole = plan_all_tiles(q_lens, kv_lens, heads, sizes)
    plan = plan_needed_tiles(q_lens, kv_lens, heads, sizes, 2, num_slots, most_tiles)
    needed = set()
    for seq, (q_len, kv_len) in enumerate(lens):
        for row in range(q_len * heads):
            last_key = kv_len - q_len + row // heads
            tiles = range(last_key // sizes.keys + 1)
            needed |= {(seq, row // sizes.rows * sizes.rows, tile) for tile in tiles}

    def tiles_of(plan):
        return [
            (seq, row, tile)
            for seq, row, begin, end, _ in plan.items.tolist()
            for tile in range(begin, end)
        ]

    assert sorted(tiles_of(plan)) == sorted(needed)
    assert needed <= set(tiles_of(whole))
    assert all(begin < end for _, _, begin, end, _ in plan.items.tolist())
    parts = sorted(plan.items[plan.items[:, 4] >= 0].tolist(), key=lambda item: item[4])
    assert [item[4] for item in parts] == list(range(plan.num_parts))
    for seq, row, first, count in plan.cut_tiles.tolist():
        of_tile = parts[first : first + count]
        assert count > 1 and all(item[:2] == [seq, row] for item in of_tile)
        assert [item[2] for item in of_tile[1:]] == [item[3] for item in of_tile[:-1]]
        lengths = [end - begin for _, _, begin, end, _ in of_tile]
        assert max(lengths) - min(lengths) <= 1
    if most_tiles:
        assert all(end - begin <= most_tiles for _, _, begin, end, _ in plan.items.tolist())


NEEDED = (128 + 4 * 64) * 128 * 2  # the shared bytes of a large tile with heads of 128


@pytest.mark.parametrize(
    "number, head_size, shared_bytes, expected",
    [
        (1, 128, SHARED_BYTES_ON_CPU, TileSizes(32, 32, 0)),
        (5, 64, SHARED_BYTES_ON_CPU, TileSizes(128, 128, 0)),
        (5, 128, SHARED_BYTES_ON_CPU, TileSizes(128, 128, 0)),
        (5, 256, SHARED_BYTES_ON_CPU, TileSizes(128, 64, 0)),
        (2, 64, SHARED_BYTES_ON_CPU, TileSizes(128, 64, 16)),
        (3, 128, SHARED_BYTES_ON_CPU, TileSizes(128, 64, 16)),
        (4, 256, SHARED_BYTES_ON_CPU, TileSizes(128, 64, 32)),
        (4, 128, NEEDED, TileSizes(128, 64, 16)),
        (4, 128, NEEDED - 1, TileSizes(64, 32, 16)),
        (4, 256, 101_376, TileSizes(64, 32, 32)),
    ],
)
def test_tiles_are_of_the_size_that_the_kernels_have(
    number, head_size, shared_bytes, expected
):
    found = tile_sizes(number, Shape(HALF, head_size, 4, 16, None, shared_bytes))
    assert repr(found) == repr(expected)  # whole numbers


@pytest.mark.parametrize(
    "lens, num_kv_heads, num_slots, num_parts",
    [
        ((4, 40), 18, 43, 3),  # the time of an item is its tiles and 1.5
        ((1, 40), 41, 100, 2),  # a tile with few rows takes 0.35
        ((4, 40), 1, 1_000, 5),  # of 4 tiles at least
        ((4, 40), 1, 1, 1),
        ((4, 40), 2, 4, 2),
    ],
)
def test_an_item_that_takes_longer_than_its_share_is_cut(
    lens, num_kv_heads, num_slots, num_parts
):
    plan = needed([lens], num_kv_heads, num_slots)
    assert len(plan.items) == num_parts
    assert plan.num_parts == (num_parts if num_parts > 1 else 0)
