"""The plan that rung 9's planning kernel makes on the device: sound for any lengths, and as
good as that of work_plan.py.
"""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decode_calls import MODEL
from examples import few
from lessons_lib.cuda.inline import read_kernel
from paged_attention.ladder.rungs import FP8
from paged_attention.ladder.self_planned import MOST_BLOCKS, MOST_SEQS, SelfPlannedDecode
from paged_attention.ladder.work_plan import (
    BUSY,
    PART_COST,
    TILE_SIZE,
    WorkPlan,
    best_plan,
    choose_heads_at_once,
    cost_of,
    tiles_of,
)
from work_items import items_of, rows_and_parts

many = few(60, drawn_anew=150)

# Empty, one token, whole tiles and one past them; and a few sequences that are much longer.
LENGTHS = st.lists(
    st.one_of(
        st.sampled_from([0, 0, 1, 15, 16, 17, 32]), st.integers(0, 300), st.integers(0, 9000)
    ),
    min_size=1,
    max_size=40,
)


@functools.cache
def decoder(max_num_seqs, num_kv_heads, num_blocks, kv_dtype=None, **sizes):
    """Kept, so that plans are written over older ones."""
    model = MODEL | dict(num_q_heads=4 * num_kv_heads, num_kv_heads=num_kv_heads) | sizes
    return SelfPlannedDecode(
        max_num_seqs, **model, kv_dtype=kv_dtype, device="cpu", num_blocks=num_blocks
    )


def planned(lengths, num_kv_heads, num_blocks, **how):
    """heads_at_once, the empty sequences, and each block's items in its order."""
    decode = decoder(40, num_kv_heads, num_blocks, **how)
    decode.plan(torch.tensor(lengths, dtype=torch.int32))
    return read_plan(decode)


def read_plan(decode):
    heads_at_once, num_empty, *empty = decode.buffers["header"].tolist()
    items = decode.buffers["items"].tolist()
    blocks = [list(items_of(items, block)) for block in range(decode.num_blocks)]
    return heads_at_once, sorted(empty[:num_empty]), blocks


def assert_sound(plan, lengths, num_kv_heads):
    """Each token is in one item, and the parts are numbered as the kernel needs."""
    heads_at_once, empty, blocks = plan
    assert empty == [seq for seq, length in enumerate(lengths) if length <= 0]
    assert all(begin < end for items in blocks for _, _, begin, end, *_ in items)
    assert all(sum(item[4] >= 0 for item in items) <= 2 for items in blocks)
    rows, parts = rows_and_parts(blocks, lengths)
    assert rows == [
        (seq, head)
        for seq, length in enumerate(lengths)
        if length > 0
        for head in range(0, num_kv_heads, heads_at_once)
    ]
    assert len(set(parts)) == len(parts) and max(parts, default=0) < 2 * len(blocks)


def as_host_plan(plan):
    """What `cost_of` looks at, of a plan that was made on the device."""
    blocks = [items for items in plan[2] if items]
    tiles = [
        sum(-(-(end - begin) // TILE_SIZE) for _, _, begin, end, *_ in items)
        for items in blocks
    ]
    parts = [sum(item[4] >= 0 for item in items) for items in blocks]
    return WorkPlan(None, len(blocks), sum(parts), max(tiles), max(parts))


# head size 256 has 4 warps in a block, the other sizes 8; fp8 keeps all blocks busy
KINDS = {
    "8 warps": (dict(), 8, BUSY),
    "4 warps": (dict(head_size=256), 4, BUSY),
    "fp8": (dict(kv_dtype=FP8), 8, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("how, num_warps, busy", KINDS.values(), ids=KINDS)
@many
@given(
    lengths=LENGTHS,
    num_kv_heads=st.sampled_from([1, 2, 3, 4, 6, 8, 16]),
    num_blocks=st.sampled_from([1, 2, 5, 20, 132]),
)
def test_the_plan_is_sound_and_takes_no_longer_than_the_host_s(
    how, num_warps, busy, lengths, num_kv_heads, num_blocks
):
    plan = planned(lengths, num_kv_heads, num_blocks, **how)
    assert_sound(plan, lengths, num_kv_heads)
    with_tokens = [length for length in lengths if length > 0]
    if not with_tokens:
        assert not any(plan[2])
        return
    heads_at_once = choose_heads_at_once(with_tokens, num_kv_heads, num_warps, num_blocks)
    assert plan[0] == heads_at_once
    host = best_plan(with_tokens, num_kv_heads, heads_at_once, num_blocks, busy)
    costs = (
        cost_of(of, heads_at_once, num_blocks, max(1, int(busy * num_blocks)))
        for of in (as_host_plan(plan), host)
    )
    assert len({*costs}) == 1


@pytest.mark.parametrize("num_seqs", [1000, 1024, 1025, 2500, MOST_SEQS])
def test_a_plan_for_thousands_of_sequences(num_seqs):
    lengths = torch.randint(0, 200, (num_seqs,), generator=torch.Generator().manual_seed(0))
    lengths[::7] = 0
    lengths[-1] = 50_000
    decode = decoder(MOST_SEQS, 3, 132)
    decode.plan(lengths.int())
    plan = read_plan(decode)
    assert_sound(plan, lengths.tolist(), 3)
    tiles = int(tiles_of(lengths[lengths > 0].numpy()).sum()) * 3
    fewest = int(BUSY * 132)
    limit = -(-tiles // fewest) * fewest + 2 * PART_COST * 132
    assert cost_of(as_host_plan(plan), plan[0], 132, fewest) <= limit


@pytest.mark.parametrize("length", [2**31 - 16, 100_000_000])
def test_a_plan_for_the_longest_contexts(length):
    plan = planned([length, 5, length // 2], 1, 132)
    assert_sound(plan, [length, 5, length // 2], 1)


def test_a_negative_length_is_taken_for_an_empty_context():
    plan = planned([5, -1, -(2**31), 40], 2, 5)
    assert_sound(plan, [5, -1, -(2**31), 40], 2)


@pytest.mark.slow
def test_the_plan_is_clean_in_checked_mode():
    for num_kv_heads, num_blocks in ((2, 5), (8, 132), (3, 1)):
        decode = SelfPlannedDecode(
            8,
            **MODEL | dict(num_q_heads=num_kv_heads, num_kv_heads=num_kv_heads),
            device="cpu",
            target="checked",
            num_blocks=num_blocks,
        )
        for lengths in ([1000, 0, 33, 5], [0, 0], [1], [16] * 8, [300, 40_000, 0]):
            for seed in range(3):
                decode.library.options(seed=seed)
                decode.plan(torch.tensor(lengths, dtype=torch.int32))
                assert_sound(read_plan(decode), lengths, num_kv_heads)


def test_python_knows_the_kernels_limits():
    text = read_kernel("ladder/plan.cuh")
    assert f"constexpr int most_seqs = {MOST_SEQS};" in text
    assert f"constexpr int most_blocks = {MOST_BLOCKS};" in text
