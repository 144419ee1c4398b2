"""Rung 9's attention: one object for one batch after another, with nothing read on the host.
(tests/test_device_plan.py is about the plan.)
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from paged_attention.metadata import BatchMetadata, attn_paged_torch, cumulative_lengths
from paged_attention.self_planned import MOST_BLOCKS, MOST_SEQS, SelfPlannedDecode
from poison import POISONS, needs_gpu, poisons
from test_ladder import (
    BFLOAT,
    CACHE,
    FP8,
    HALF,
    TABLE,
    Q,
    assert_right,
    at_an_odd_place,
    fp8,
    name_of,
)
from test_paged_kernel import Batch, device_of, on_each_target, one_thread  # noqa: F401

few = settings(max_examples=15, deadline=None, derandomize=True)
MODEL = dict(num_q_heads=8, num_kv_heads=2, head_size=128, block_size=16, dtype=HALF)


def with_rung_9(batch, target, max_num_seqs=None, num_blocks=None):
    return SelfPlannedDecode(
        max_num_seqs or len(batch.context_lens),
        num_q_heads=batch.num_q_heads,
        num_kv_heads=batch.num_kv_heads,
        head_size=batch.head_size,
        block_size=batch.block_size,
        dtype=batch.dtype,
        device=device_of(target),
        target=target,
        num_blocks=num_blocks,
    )


def compute(decode, tensors):
    tensors = dict(tensors)
    decode.plan(tensors.pop("context_lens"))
    return decode(**tensors)


def by_torch(q, k_cache, v_cache, block_table, context_lens):
    """The oracle of lesson 05, in float64. It takes no empty context: those get zeros."""
    q, k_cache, v_cache = (x.cpu().double().nan_to_num() for x in (q, k_cache, v_cache))
    has_tokens = context_lens.cpu() > 0
    lens, out = context_lens.cpu()[has_tokens], torch.zeros_like(q)
    metadata = BatchMetadata(
        cumulative_lengths([1] * len(lens)),
        lens,
        block_table.cpu()[has_tokens],
        torch.arange(len(lens)),  # which slots are written does not matter here
    )
    out[has_tokens] = attn_paged_torch(q[has_tokens], k_cache, v_cache, metadata)
    return out


SHORT = st.lists(
    st.sampled_from([0, 1, 15, 16, 17, 31, 32, 33, 100, 150]), min_size=1, max_size=6
)


@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=needs_gpu)])
@few
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
        tensors = replace(model, context_lens=tuple(lengths)).tensors(target)
        out = compute(decode, tensors)
        assert_right(out, tensors)
        assert torch.equal(compute(decode, tensors), out)
        assert not decode.buffers["arrived"].any()


SHAPES = (
    Batch((0, 40, 129, 600), 2, 2, 64, 8, BFLOAT, garbage=2**31 - 1),
    Batch((5, 300, 0), 48, 3, 128, 32, HALF, gap=8),
    Batch((70, 7, 17), 16, 1, 64, 16, HALF),
    Batch((250, 16, 0), 10, 2, 256, 16, BFLOAT),
    Batch((33,) * 30, 8, 8, 128, 5, HALF),
)


@pytest.mark.sampled(3)
@on_each_target
@pytest.mark.parametrize("batch", SHAPES, ids=name_of)
def test_all_shapes_agree_with_pytorch(target, batch):
    tensors = batch.tensors(target)
    out = compute(with_rung_9(batch, target), tensors)
    assert_right(out, tensors, by_torch(**tensors))


@on_each_target
@pytest.mark.parametrize("head_size", [128, 256])
def test_fp8_caches(target, head_size):
    batch = Batch((100, 0, 33, 700, 1), 8, 2, head_size, 16, HALF)
    if target == "gpu" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no fp8")
    tensors, exact = fp8(batch.tensors(target))
    decode = SelfPlannedDecode(
        5,
        **MODEL | dict(head_size=head_size),
        kv_dtype=FP8,
        device=device_of(target),
        target=target,
    )
    assert_right(compute(decode, tensors), exact)


@on_each_target
@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_what_no_sequence_owns_changes_no_bit(target, poison):
    batch = Batch((100, 0, 33, 16, 1), 8, 2, 128, 16, HALF, gap=8, poison=0.0)
    decode = with_rung_9(batch, target)
    clean = compute(decode, batch.tensors(target))
    for garbage in (-1, 0, 2**31 - 1):
        tensors = replace(batch, poison=poison, garbage=garbage).tensors(target)
        assert torch.equal(compute(decode, tensors), clean)


@on_each_target
def test_empty_contexts_get_zeros(target):
    batch = Batch((0,) * 7, 8, 2, 128, 16, HALF)
    tensors = batch.tensors(target)
    out = torch.full_like(tensors["q"], float("nan"))
    decode = with_rung_9(batch, target, num_blocks=3)
    compute(decode, tensors | {"out": out})
    assert not out.any()
    tensors["block_table"] = tensors["block_table"][:, :0].contiguous()
    assert not compute(decode, tensors).any()


@on_each_target
def test_each_call_takes_its_own_tensors(target):
    """Layers: other caches of one shape, the same plan; then another scale."""
    batch = Batch((100, 0, 33), 8, 2, 128, 16, HALF)
    layers = [replace(batch, seed=seed).tensors(target) for seed in range(3)]
    decode = with_rung_9(batch, target)
    decode.plan(layers[0]["context_lens"])
    for layer in (*layers, layers[0]):
        arguments = {name: layer[name] for name in layer if name != "context_lens"}
        assert_right(decode(**arguments), layer)
    halved = arguments | {"q": arguments["q"] / 2}
    out = torch.empty_like(halved["q"])
    assert decode(**halved, scale=2 / 128**0.5, out=out) is out
    assert_right(out, layers[0])


class NothingReadOnTheHost(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        assert "local_scalar" not in function._opname and "_to_copy" not in function._opname
        return function(*arguments, **named or {})


def test_nothing_is_read_on_the_host():
    batch = Batch((100, 0, 33), 8, 2, 128, 16, HALF)
    tensors, decode = batch.tensors(), with_rung_9(batch, "fast")
    with NothingReadOnTheHost():
        out = compute(decode, tensors)
    assert_right(out, tensors)
    with pytest.raises(AssertionError), NothingReadOnTheHost():  # it would notice
        tensors["context_lens"].max().item()


@needs_gpu
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


# What is refused

LENS = torch.tensor([5, 4], dtype=torch.int32)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(max_num_seqs=0), ValueError, ["max_num_seqs", "4096", "0"]),
        (dict(max_num_seqs=MOST_SEQS + 1), ValueError, ["max_num_seqs", "4096", "4097"]),
        (dict(num_blocks=MOST_BLOCKS + 1), ValueError, ["num_blocks", "256", "257"]),
        (dict(num_q_heads=7), ValueError, ["num_q_heads", "2 KV heads", "7"]),
        (dict(head_size=96), ValueError, ["head_size", "rung 9", "96"]),
        (dict(head_size=64, kv_dtype=FP8), ValueError, ["head_size", "128 or", "64"]),
        (dict(dtype=BFLOAT, kv_dtype=FP8), TypeError, ["dtype", "float16", "bfloat16"]),
        (dict(kv_dtype=BFLOAT), TypeError, ["kv_dtype", "float16", "bfloat16"]),
        (dict(dtype=torch.float32), TypeError, ["dtype", "float32"]),
    ],
)
def test_what_it_is_not_made_for_is_refused(changes, error, words):
    with pytest.raises(error) as caught:
        SelfPlannedDecode(**dict(max_num_seqs=4, device="cpu") | MODEL | changes)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "lens, error, words",
    [
        (LENS.repeat(3), ValueError, ["context_lens", "1 to 4", "6"]),
        (LENS[:0], ValueError, ["context_lens", "1 to 4", "0"]),
        (LENS.long(), TypeError, ["context_lens", "int32", "int64"]),
        (LENS[None], ValueError, ["context_lens", "(num_seqs,)"]),
        (LENS.repeat(2)[::2], ValueError, ["context_lens", "contiguous"]),
        (LENS.to("meta"), ValueError, ["context_lens", "meta"]),
        ([5, 4], TypeError, ["context_lens", "list"]),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lens, error, words):
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    with pytest.raises(error) as caught:
        decode.plan(lens)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(q=Q[:1]), ValueError, ["q", "(2, 8, 128)"]),
        (dict(q=Q.float()), TypeError, ["q", "float16"]),
        (dict(k_cache=CACHE[:, :, :1]), ValueError, ["k_cache", "(num_blocks, 16, 2, 128)"]),
        (dict(block_table=TABLE.long()), TypeError, ["block_table", "int32"]),
        (dict(k_scales=torch.ones(2)), ValueError, ["k_scales", "rung 9"]),
        (dict(out=Q[:1]), ValueError, ["out", "(2, 8, 128)"]),
        (dict(k_cache=at_an_odd_place(CACHE)), ValueError, ["k_cache must begin", "16"]),
        (dict(q=at_an_odd_place(Q)), ValueError, ["q must begin", "16"]),
        (dict(q=Q.to("meta")), ValueError, ["meta"]),
        (dict(block_table=[[0], [0]]), TypeError, ["block_table", "list"]),
    ],
)
def test_tensors_that_do_not_fit_are_refused_after_right_ones_too(changes, error, words):
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    right = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE)
    with pytest.raises(RuntimeError, match="call plan"):
        decode(**right)
    decode.plan(LENS)
    for _ in range(2):
        with pytest.raises(error) as caught:
            decode(**right | changes)
        assert all(word in str(caught.value) for word in words), caught.value
        decode(**right)


def test_another_number_of_sequences_needs_other_tensors():
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    decode.plan(LENS)
    decode(Q, CACHE, CACHE, TABLE)
    decode.plan(LENS[:1])
    with pytest.raises(ValueError, match=r"q must have the shape \(1, 8, 128\)"):
        decode(Q, CACHE, CACHE, TABLE)
