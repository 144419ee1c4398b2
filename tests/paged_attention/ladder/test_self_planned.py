"""Rung 9's attention: one object for one batch after another, with nothing read on the host.
(tests/paged_attention/ladder/test_device_plan.py is about the plan.)
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decode_calls import HALF, assert_right, shape
from examples import few
from paged_attention.ladder.rungs import num_warps
from paged_attention.ladder.self_planned import SelfPlannedDecode, make_buffers
from paged_attention.ladder.work_plan import choose_heads_at_once
from paged_batch import Batch, device_of, on_each_target
from poison import poisons

pytestmark = pytest.mark.usefixtures("one_thread")

some = few(8, drawn_anew=15)


def with_rung_9(batch, target, max_num_seqs=None, num_blocks=None):
    return SelfPlannedDecode(
        max_num_seqs or len(batch.lens),
        **batch.model,
        device=device_of(target),
        target=target,
        num_blocks=num_blocks,
    )


def compute(decode, tensors):
    tensors = dict(tensors)
    decode.plan(tensors.pop("context_lens"))
    return decode(**tensors)


SHORT = st.lists(
    st.sampled_from([0, 1, 15, 16, 17, 31, 32, 33, 100, 150]), min_size=1, max_size=6
)


@given(
    lens=st.lists(st.integers(1, 5000), min_size=1, max_size=200),
    num_kv_heads=st.integers(1, 16),
    num_blocks=st.integers(1, 132),
)
def test_two_parts_of_each_block_have_room_for_all_heads_at_once(
    lens, num_kv_heads, num_blocks
):
    made_for = shape()
    buffers = make_buffers(len(lens), num_kv_heads, num_blocks, made_for, torch.device("cpu"))
    heads = choose_heads_at_once(lens, num_kv_heads, num_warps(made_for), num_blocks)
    assert len(buffers["parts"]) >= 2 * num_blocks * heads


@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=pytest.mark.gpu)])
@some
@given(
    batches=st.lists(SHORT, min_size=1, max_size=4),
    num_kv_heads=st.sampled_from([1, 2, 8]),
    num_blocks=st.sampled_from([None, 1, 3, 40]),
    garbage=st.sampled_from([-1, 0, 2**31 - 1]),
    poison=poisons,
    seed=st.integers(0, 10**6),
)
def test_one_object_serves_one_batch_after_another(
    target, batches, num_kv_heads, num_blocks, garbage, poison, seed
):
    model = Batch(
        (0,), 4 * num_kv_heads, num_kv_heads, 128, 16, HALF, 8, garbage, seed, poison
    )
    decode = with_rung_9(model, target, 6, num_blocks)
    for lengths in batches:
        tensors = replace(model, lens=tuple(lengths)).tensors(target)
        out = compute(decode, tensors)
        assert_right(out, tensors)
        assert torch.equal(compute(decode, tensors), out)
        assert not decode.buffers["arrived"].any()


@on_each_target
def test_each_call_takes_its_own_tensors(target):
    """Layers: other caches of one shape, the same plan."""
    batch = Batch((100, 0, 33), 8, 2, 128, 16, HALF)
    layers = [replace(batch, seed=seed).tensors(target) for seed in range(3)]
    decode = with_rung_9(batch, target)
    decode.plan(layers[0]["context_lens"])
    for layer in (*layers, layers[0]):
        arguments = {name: layer[name] for name in layer if name != "context_lens"}
        assert_right(decode(**arguments), layer)


@pytest.mark.gpu
def test_a_cuda_graph_serves_any_lengths():
    batch = Batch((500, 0, 33, 7, 100), 8, 2, 128, 16, HALF)
    tensors = batch.tensors("gpu")
    decode = with_rung_9(batch, "gpu", 8)
    compute(decode, tensors)  # builds, and loads the kernels
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    with torch.cuda.graph(graph):
        out = compute(decode, tensors)
    torch.cuda.set_sync_debug_mode("default")
    for lengths in (
        (500, 0, 33, 7, 100),
        (0, 0, 0, 0, 0),
        (1, 0, 16, 0, 5),
        (480, 0, 1, 1, 99),
    ):
        tensors["context_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        assert_right(out, tensors)
