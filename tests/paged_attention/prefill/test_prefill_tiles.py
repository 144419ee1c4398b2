"""Lesson 09's counts and plans, against what they are made of: pairs, rows and time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from lessons_content.lesson_09.bench.prefill_workloads import VARIANTS, WORKLOADS
from paged_attention.attention.metadata import visible_keys
from paged_attention.prefill.tile_counts import causal_tiles, count_work, pack_rows, run_items

often = few(80, drawn_anew=200)
lens = st.integers(0, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, n + 40)))


@often
@given(st.lists(lens, max_size=5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8))
def test_operations_are_those_of_the_pairs_that_see_each_other(batch, kv_heads, group, size):
    heads = dict(num_q_heads=kv_heads * group, num_kv_heads=kv_heads, head_size=size)
    q_lens, kv_lens = [n for n, _ in batch], [c for _, c in batch]
    operations, num_bytes = count_work(q_lens, kv_lens, **heads, bytes_per_number=2)
    pairs = sum(int(visible_keys(n, c).sum()) for n, c in batch)
    assert operations == 2 * 2 * pairs * kv_heads * group * size
    numbers = (2 * sum(q_lens) * group + 2 * sum(kv_lens)) * kv_heads * size
    assert num_bytes == 2 * numbers


@pytest.mark.parametrize("workload", (*WORKLOADS, *VARIANTS), ids=lambda each: each.name)
def test_the_benchmark_counts_alike(workload):
    heads = {
        name: getattr(workload, name) for name in ("num_q_heads", "num_kv_heads", "head_size")
    }
    operations, _ = count_work(*zip(*workload.lens, strict=True), **heads, bytes_per_number=2)
    assert workload.operations() == operations


@often
@given(lens.filter(lambda pair: pair[0]), st.integers(1, 9), st.data())
def test_tiles_of_keys_are_whole_cut_or_hidden(pair, tile_keys, data):
    num_queries, num_keys = pair
    first = data.draw(st.integers(0, num_queries - 1))
    last = data.draw(st.integers(first, num_queries - 1))
    num_whole, end = causal_tiles(first, last, num_queries, num_keys, tile_keys)
    seen = visible_keys(num_queries, num_keys)[first : last + 1].numpy()
    for tile in range(-(-num_keys // tile_keys)):
        part = seen[:, tile * tile_keys : (tile + 1) * tile_keys]
        assert (tile < num_whole) == (part.shape[1] == tile_keys and part.all())
        assert (tile < end) == part.any()


@often
@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 3), st.integers(1, 40))
def test_rows_are_each_query_with_each_head_of_the_group_once(
    queries, group, kv_head, tile_rows
):
    tiles = pack_rows(queries, group, kv_head, tile_rows)
    rows = [row for tile in tiles for row in tile]
    assert rows == sorted(rows) and len(set(rows)) == len(rows) == queries * group
    assert {head // group for _, head in rows} <= {kv_head}
    assert all(len(tile) == tile_rows for tile in tiles[:-1])
    assert all(1 <= len(tile) <= tile_rows for tile in tiles)


@often
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.booleans())
def test_a_slot_is_never_free_while_an_item_waits(times, num_slots, longest_first):
    begun = run_items(times, num_slots, longest_first)
    assert sorted(item for item, _, _ in begun) == list(range(len(times)))
    free_at = [0] * num_slots
    for item, slot, begin in begun:
        assert begin == free_at[slot] == min(free_at)
        assert slot == free_at.index(begin)
        free_at[slot] += times[item]
    order = [item for item, _, _ in begun]
    key = (lambda item: (-times[item], item)) if longest_first else None
    assert order == sorted(order, key=key)
