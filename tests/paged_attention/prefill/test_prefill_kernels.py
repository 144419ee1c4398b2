"""Every rung of the prefill ladder against attention in float64, on the CPU and on a GPU."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decode_calls import BFLOAT, FAR, HALF, MODEL, name_of
from dense_attention import pool_attention
from examples import few
from launches import Launches
from lessons_content.lesson_09.bench import prefill as bench
from lessons_lib.cuda.library import KernelError
from paged_attention.ladder.decode import Shape
from paged_attention.prefill.kernels import PagedPrefill, attn_paged_prefill
from paged_attention.prefill.rungs import PREFILL_RUNGS, prefill_library
from paged_batch import PrefillBatch, on_each_target, planned
from poison import poisons
from rounding import assert_within_rounding
from unsaid import unsaid

pytestmark = pytest.mark.usefixtures("one_thread")

some = few(8, drawn_anew=12)
NUMBERS = range(len(PREFILL_RUNGS))
on_rungs = pytest.mark.parametrize("number", NUMBERS)


def check(number, batch, target, **how):
    q, k_cache, v_cache, metadata = batch.tensors(target)
    prefill = planned(number, batch, metadata, target, **how)
    out = prefill(q, k_cache, v_cache, metadata.block_table)
    assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata))
    # every bit the same
    assert torch.equal(prefill(q, k_cache, v_cache, metadata.block_table), out)
    return prefill


# Whole prompts, chunks, single tokens, edges of blocks and tiles, sequences without queries.
MIXED = ((1, 1), (0, 5), (16, 16), (17, 40), (1, 65), (0, 0), (33, 33), (7, 64), (2, 100))
MIX = PrefillBatch(MIXED)  # the shape that most tests use, so that it is built once
SHAPES = (
    PrefillBatch(
        ((40, 40), (3, 130), (1, 9)), 8, 1, 64, 8, BFLOAT, gap=8, garbage=FAR, shared=1
    ),
    PrefillBatch(((20, 33), (1, 65), (0, 0), (5, 5)), 7, 1, 256, 32, BFLOAT),
    PrefillBatch(((65, 65), (1, 128)), 2, 2, 128, 64, HALF, gap=16),
    PrefillBatch(((9, 70), (1, 17)), 32, 2, 128, 24, BFLOAT, garbage=FAR),
    PrefillBatch(((30, 64), (2, 31)), 4, 2, 64, 16, HALF, shared=1),
)


on_shapes = pytest.mark.parametrize("batch", SHAPES, ids=name_of)


@pytest.mark.sampled(12)
@on_each_target
@on_rungs
def test_a_mixed_batch(number, target):
    check(number, MIX, target)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=pytest.mark.gpu)])
@on_rungs
def test_several_tiles_of_queries_and_of_keys(number, target):
    check(number, replace(MIX, lens=((130, 250), (40, 40))), target)


def made_for(number, batch):
    """Rung 5 copies whole blocks into tiles."""
    return number != 5 or batch.block_size in (8, 16, 32, 64)


@pytest.mark.slow
@pytest.mark.sampled
@on_rungs
@on_shapes
@pytest.mark.parametrize("target", ["fast", "checked"])
def test_every_rung_in_every_shape(number, batch, target):
    if made_for(number, batch):
        check(number, batch, target)


@pytest.mark.gpu
@on_rungs
@on_shapes
def test_every_rung_in_every_shape_on_the_gpu(number, batch):
    if made_for(number, batch):
        check(number, batch, "gpu")


@pytest.mark.slow
@on_each_target
@pytest.mark.parametrize("number, most_tiles", [(4, 1), (4, 2), (5, 1)])
def test_contexts_in_parts(number, most_tiles, target):
    batch = replace(
        MIX, lens=((40, 200), (1, 300), (0, 9), (3, 3)), num_q_heads=8, num_kv_heads=2
    )
    prefill = check(number, batch, target, most_tiles=most_tiles)
    assert prefill.plan.num_parts > 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=pytest.mark.gpu)])
@on_rungs
@some
@given(data=st.data(), seed=st.integers(0, 10**6), poison=poisons)
def test_any_batch(number, target, data, seed, poison):
    lens = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, 1, 2, 15, 33]), st.sampled_from([0, 1, 15, 16, 48, 63])
            ).map(lambda pair: (pair[0], sum(pair))),
            max_size=5,
        )
    )
    num_kv_heads = data.draw(st.sampled_from([1, 2]))
    batch = replace(
        MIX,
        lens=tuple(lens),
        num_q_heads=4 * num_kv_heads,
        num_kv_heads=num_kv_heads,
        gap=data.draw(st.sampled_from([0, 8])),
        garbage=data.draw(st.sampled_from([-1, 0, FAR])),
        shared=data.draw(st.sampled_from([0, 2])),
        seed=seed,
        poison=poison,
    )
    how = {}
    if number >= 4:
        how["most_tiles"] = data.draw(st.sampled_from([None, 1]))
    if target == "fast":
        prefill_library(number, Shape(HALF, 128, 4, 16), target).options(seed=seed % 3)
    if sum(q_len for q_len, _ in lens):
        check(number, batch, target, **how)
    else:
        q, k_cache, v_cache, metadata = batch.tensors(target)
        out = attn_paged_prefill(q, k_cache, v_cache, metadata, target=target, number=number)
        assert out.shape == (0, 4 * num_kv_heads, 128)


@on_rungs
@pytest.mark.parametrize("factor", [300.0, 0.0, -1.0])
def test_other_scales_and_a_given_output(number, factor):
    """Scores that expf cannot take, the mean of the values, and the other way round."""
    q, k_cache, v_cache, metadata = replace(MIX, lens=((5, 40), (20, 20))).tensors()
    prefill = planned(number, MIX, metadata, "fast")
    out, scale = torch.full_like(q, 7.0), factor / math.sqrt(128)
    assert prefill(q, k_cache, v_cache, metadata.block_table, scale=scale, out=out) is out
    assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata, scale))


@on_rungs
def test_each_call_takes_its_own_tensors(number):
    """Layers: other caches of one shape, the same plan; then queries whose rows are apart."""
    batches = [replace(MIX, seed=seed, gap=8 * (seed > 2)) for seed in range(4)]
    *_, metadata = batches[0].tensors()
    with unsaid():
        prefill = planned(number, MIX, metadata, "fast")
    for batch in (*batches, batches[0]):
        q, k_cache, v_cache, metadata = batch.tensors()
        metadata = replace(metadata, block_table=metadata.block_table.clamp(min=0))
        with unsaid():
            out = prefill(q, k_cache, v_cache, metadata.block_table)
        assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata))


def test_lengths_that_the_caller_has_are_not_read_from_the_device():
    unread = torch.empty(3, dtype=torch.int32, device="meta")
    made = PagedPrefill(
        4,
        unread,
        unread[1:],
        **MODEL,
        lengths=(np.array([3, 4]), np.array([5, 70])),
        library=Launches(),
    )
    assert (made.num_tokens, made.most_keys) == (7, 70)
    assert made.plan.items[:, 3].tolist() == [2, 1]


def test_after_an_error_the_next_call_is_right():
    q, k_cache, v_cache, metadata = MIX.tensors()
    prefill = planned(4, MIX, metadata, "checked")
    wrong = metadata.block_table.clone()
    wrong[3, 1] = len(k_cache)
    with pytest.raises(KernelError) as caught:
        prefill(q, k_cache, v_cache, wrong)
    assert caught.value.kind in ("block-table", "out-of-bounds"), caught.value
    out = prefill(q, k_cache, v_cache, metadata.block_table)
    assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata))


@pytest.mark.gpu
@on_rungs
def test_a_cuda_graph_holds_the_call_on_the_gpu(number):
    q, k_cache, v_cache, metadata = MIX.tensors("gpu")
    prefill, graph = planned(number, MIX, metadata, "gpu"), torch.cuda.CUDAGraph()
    query = torch.zeros_like(q)
    prefill(query, k_cache, v_cache, metadata.block_table)
    with torch.cuda.graph(graph):
        out = prefill(query, k_cache, v_cache, metadata.block_table)
    query.copy_(q)
    graph.replay()
    torch.cuda.synchronize()
    assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata))


@pytest.mark.gpu
@pytest.mark.slow
def test_a_million_keys_on_the_gpu():
    """The values of the first and the last key are large, so that a missing one shows."""
    batch = replace(MIX, lens=((3, 1_000_000), (100, 100)))
    q, k_cache, v_cache, metadata = batch.tensors("gpu")
    for token in (0, 999_999):
        v_cache[metadata.block_table[0, token // 16], token % 16] *= 1000
    out = attn_paged_prefill(q, k_cache, v_cache, metadata)
    assert_within_rounding(out, q, pool_attention(q, k_cache, v_cache, metadata))


@on_rungs
def test_a_launch_for_other_tiles_is_refused(number):
    if number == 0:
        return
    q, k_cache, v_cache, metadata = MIX.tensors()
    prefill = planned(number, MIX, metadata, "fast")
    prefill.workspace["planned_rows"] += 1
    with pytest.raises(KernelError):
        prefill(q, k_cache, v_cache, metadata.block_table)


def test_the_benchmark_knows_the_batch():
    lens = ((6, 40), (20, 20), (1, 33))
    workload = bench.PrefillWorkload("", lens, 4, 1, dtype=HALF)
    batch = bench.make_batch(workload, "cpu")
    tokens, expected = bench.reference(batch)
    assert tokens.tolist() == [2, 3, 4, 5, 22, 23, 24, 25, 26]
    out = bench.plan_rung(4, batch)(batch.q, batch.k_cache, batch.v_cache, batch.block_table)
    assert_within_rounding(out[tokens], batch.q[tokens], expected)
