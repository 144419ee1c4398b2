"""Every rung of the ladder against dense attention in float64, on the CPU and on a GPU."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decode_calls import (
    BFLOAT,
    FAR,
    FLOAT,
    HALF,
    assert_right,
    at_an_odd_place,
    check,
    fp8,
    name_of,
    prepared,
)
from dense_attention import decode_attention
from examples import few
from lessons_lib.cuda.library import KernelError
from paged_attention.ladder.decode import FP8, RUNGS, Shape, attn_paged_fast, rung_library
from paged_batch import Batch, on_each_target
from poison import poisons
from unsaid import unsaid

pytestmark = pytest.mark.usefixtures("one_thread")

some = few(8, drawn_anew=15)

BATCHES = (
    Batch((0, 1, 15, 16, 17), 8, 2, 128, 16, HALF),
    Batch((40, 0, 129), 2, 2, 64, 8, BFLOAT, garbage=FAR),
    Batch((5, 300, 64), 8, 1, 256, 32, HALF, gap=8),
    Batch((70, 7), 32, 2, 128, 64, BFLOAT, garbage=FAR),
    Batch((1, 31, 33), 24, 2, 64, 5, HALF),
    Batch((250, 16), 3, 1, 256, 16, BFLOAT),
    Batch((48, 0, 0, 20, 100), 24, 4, 128, 5, HALF, gap=16),
    Batch((65, 2), 7, 1, 64, 64, BFLOAT),
    Batch((17,) * 9, 4, 2, 256, 8, HALF),
    Batch(tuple(range(40)), 5, 1, 128, 32, BFLOAT),
    Batch((200, 199), 64, 8, 64, 16, HALF, garbage=FAR),
    Batch((90,), 12, 1, 256, 64, BFLOAT),
)
FLOATS = (
    Batch((16, 0, 200), 6, 2, 64, 16, FLOAT),
    Batch((1, 77), 2, 2, 128, 5, FLOAT, gap=4),
    Batch((40,), 2, 1, 256, 8, FLOAT),
)


def batches_of(number, every, of_rung_7=BATCHES):
    """Each rung takes some of the shapes: float is for the first rungs, fp8 has no small
    heads.
    """
    if number == 7:
        return of_rung_7
    chosen = BATCHES[number % every :: every]
    if number <= 3:
        return chosen + FLOATS[number % 3 :: 2]
    if number == 8:
        return tuple(replace(batch, dtype=HALF) for batch in chosen if batch.head_size > 64)
    return chosen


def on_rungs(*which):
    cases = [
        (rung.number, batch) for rung in RUNGS for batch in batches_of(rung.number, *which)
    ]
    return pytest.mark.parametrize(
        "number, batch", cases, ids=[f"{number}-{name_of(batch)}" for number, batch in cases]
    )


@pytest.mark.sampled(12)
@on_rungs(4)
def test_every_rung_is_dense_attention(number, batch):
    check(number, batch, "fast")


@pytest.mark.gpu
@on_rungs(6)
def test_every_rung_is_dense_attention_on_the_gpu(number, batch):
    check(number, batch, "gpu")


@pytest.mark.sampled(12)
@on_rungs(6, BATCHES[::5])
def test_every_rung_is_clean_in_checked_mode(number, batch):
    check(number, batch, "checked")


# Batches of one shape, so that it is built once.
LENGTHS = st.lists(
    st.sampled_from([0, 1, 15, 16, 17, 31, 32, 33, 47, 64, 100, 150]), min_size=1, max_size=6
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(len(RUNGS)))
@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=pytest.mark.gpu)])
@some
@given(
    lengths=LENGTHS,
    num_kv_heads=st.sampled_from([1, 2, 3, 8]),
    seed=st.integers(0, 10**6),
    garbage=st.sampled_from([-1, 0, FAR]),
    gap=st.sampled_from([0, 8]),
    poison=poisons,
    data=st.data(),
)
def test_any_batch_is_dense_attention(number, target, lengths, num_kv_heads, data, **others):
    batch = Batch(tuple(lengths), 4 * num_kv_heads, num_kv_heads, 128, 16, HALF, **others)
    how = {}
    if number == 6:
        how["num_splits"] = data.draw(st.sampled_from([1, 2, 3, 4, 5, 16]))
    if number in (7, 8):
        how["heads_at_once"] = data.draw(
            st.sampled_from([h for h in (1, 2, 4, 8) if num_kv_heads % h == 0])
        )
    if number >= 7:
        most = 256 if number == 9 else 1000
        how["num_blocks"] = data.draw(st.sampled_from([None, 1, 2, 3, 7, most]))
    if target == "fast":
        rung_library(number, shape_of(number, batch), target).options(seed=batch.seed % 3)
    check(number, batch, target, **how)


def shape_of(number, batch):
    return Shape(
        batch.dtype,
        batch.head_size,
        batch.num_q_heads // batch.num_kv_heads,
        batch.block_size,
        FP8 if number == 8 else None,
    )


ONE_SHAPE = Batch((100, 0, 33, 16, 1), 8, 2, 128, 16, HALF)


@pytest.mark.sampled(4)
@on_each_target
@pytest.mark.parametrize("number", [0, 1, 2])
def test_scores_that_shared_memory_cannot_hold(number, target):
    batch = Batch((3, 12_000), 4, 1, 128, 16, HALF)
    assert prepared(number, batch, target)[0].scores is not None
    check(number, batch, target)


@pytest.mark.parametrize("number", range(len(RUNGS)))
@pytest.mark.parametrize("factor", [300.0, 0.0, -1.0])
def test_other_scales_and_a_given_output(number, factor):
    """Scores that expf cannot take, the mean of the values, and the other way round."""
    decode, arguments, exact = prepared(number, ONE_SHAPE, "fast")
    out = torch.full_like(arguments["q"], 7.0)
    assert decode(**arguments, scale=factor / 128**0.5, out=out) is out
    assert_right(out, exact, decode_attention(**exact | {"q": factor * exact["q"].double()}))


@pytest.mark.parametrize("number", [0, 1])
def test_loads_of_single_numbers_may_begin_anywhere(number):
    decode, arguments, exact = prepared(number, ONE_SHAPE, "fast")
    odd = {name: at_an_odd_place(arguments[name]) for name in ("q", "k_cache", "v_cache")}
    assert_right(decode(**arguments | odd), exact)


@pytest.mark.parametrize("number", range(len(RUNGS)))
def test_empty_contexts_only(number):
    decode, arguments, _ = prepared(number, replace(ONE_SHAPE, lens=(0, 0)), "fast")
    arguments["block_table"] = arguments["block_table"][:, :0].contiguous()
    assert not decode(**arguments).any()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(len(RUNGS)))
def test_after_an_error_the_next_call_is_right(number):
    decode, arguments, exact = prepared(number, ONE_SHAPE, "checked")
    wrong = arguments["block_table"].clone()
    wrong[0, 2] = len(arguments["k_cache"])
    with pytest.raises(KernelError) as caught:
        decode(**arguments | {"block_table": wrong})
    # rung 7 reads the table far ahead
    assert caught.value.kind in ("block-table", "out-of-bounds"), caught.value
    assert_right(decode(**arguments), exact)


@pytest.mark.slow
@on_each_target
def test_the_last_rung_that_fits(target):
    for batch in BATCHES[::5]:
        tensors = batch.tensors(target)
        assert_right(attn_paged_fast(**tensors, target=target), tensors)
    for batch in (BATCHES[0], BATCHES[2]):  # heads of 128 and of 256
        tensors, exact = fp8(batch.tensors(target))
        assert_right(attn_paged_fast(**tensors, target=target), exact)


@pytest.mark.slow
def test_more_sequences_than_the_device_plans_for():
    in_16_bits = Batch((3,) * 4097, 1, 1, 128, 16, HALF).tensors()
    for tensors, exact in ((in_16_bits, in_16_bits), fp8(in_16_bits)):
        assert_right(attn_paged_fast(**tensors), exact)
        wrong = tensors["block_table"].clone()
        wrong[4096, 0] = FAR
        with pytest.raises(ValueError, match="block_table, row 4096"):
            attn_paged_fast(**tensors | {"block_table": wrong})


@pytest.mark.parametrize("number", range(len(RUNGS)))
def test_a_call_makes_no_tensor_without_saying_where_and_of_what(number):
    tensors = ONE_SHAPE.tensors()
    with unsaid():
        decode, arguments, exact = prepared(number, ONE_SHAPE, "fast", tensors=tensors)
        out = decode(**arguments)
    assert_right(out, exact)


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(RUNGS)))
def test_a_cuda_graph_holds_the_call(number):
    decode, arguments, exact = prepared(number, ONE_SHAPE, "gpu")
    decode(**arguments)  # builds, and loads the kernel
    queries, graph = arguments["q"], torch.cuda.CUDAGraph()
    query = torch.zeros_like(queries)
    with torch.cuda.graph(graph):
        out = decode(**arguments | {"q": query})
    for factor in (1, 2):
        query.copy_(queries / factor)
        graph.replay()
        torch.cuda.synchronize()
        assert_right(out, exact | {"q": query})


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths",
    [(100_000, 5), (1_000_000,), (2_047,) * 64],
    ids=["100,000", "1,000,000", "64 of 2,047"],
)
def test_long_contexts(lengths):
    """The values of the first and the last token are large, so that a missing one shows."""
    batch = Batch(lengths, 4, 1, 128, 16, HALF)
    tensors = batch.tensors("gpu")
    for row, length in enumerate(lengths):
        for token in (0, length - 1):
            tensors["v_cache"][tensors["block_table"][row, token // 16], token % 16] *= 1000
    expected = decode_attention(**tensors)
    for number in (*range(8), 9):
        decode, arguments, exact = prepared(number, batch, "gpu", tensors=tensors)
        assert_right(decode(**arguments), exact, expected)
    decode, arguments, exact = prepared(8, batch, "gpu", tensors=tensors)
    assert_right(decode(**arguments), exact)
