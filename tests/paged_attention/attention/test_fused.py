"""Attention in one call of a library: the library itself on a GPU, elsewhere a stand-in."""

import copy
import dataclasses
import functools
import inspect
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from fused_libraries import (
    FlashInferWrapper,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    stand_ins,
    varlen_attn,
)
from lessons_content.lesson_08.bench.path_b_runs import LARGEST_DIFFERENCE, LARGEST_ERROR
from paged_attention.attention.fused import (
    WAYS,
    FusedAttention,
    attn_paged_fused,
    check_fused,
    fused_needs,
)
from paged_attention.attention.metadata import BatchMetadata, attn_paged_torch
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import CPU_ONLY, NEEDS, PATHS
from refused import refused
from tools.bench.path_b import (
    HEAD_SIZE,
    SCENARIOS,
    SHAPES,
    Batch,
    compare_batches,
    measure_paths,
    random_batches,
)

pytestmark = pytest.mark.usefixtures("one_thread")
some = few(12, drawn_anew=30)
needs_fused = pytest.mark.skipif(fused_needs() is not None, reason=f"needs {fused_needs()}")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
on_ways = pytest.mark.parametrize("way", WAYS)
MIX = SCENARIOS["a mix of both"]
TENSORS = "q", "k_cache", "v_cache"


def batch_for(way, sequences=MIX, head_size=64, dtype=torch.float16, block_size=16, **more):
    """With the block size, or for a way that takes multiples of 256 only with such a one."""
    block_size = math.lcm(block_size, WAYS[way].block_sizes)
    return Batch(sequences, dtype, head_size, block_size, **{"device": "cpu"} | more)


def tensors(batch):
    k_cache, v_cache = batch.kv_cache
    return dict(q=batch.q, k_cache=k_cache, v_cache=v_cache, metadata=batch.metadata)


def by_stand_in(q, k_cache, v_cache, metadata, way):
    """What a FusedAttention computes on a GPU."""
    with stand_ins():
        return WAYS[way].plan(metadata, q, k_cache)(q.contiguous(), k_cache, v_cache)


def assert_agrees(row):
    assert row.difference <= LARGEST_DIFFERENCE[row.dtype], row
    assert row.error <= LARGEST_ERROR[row.dtype], row
    assert row.same_when_poisoned, row


@given(
    sequences=st.lists(
        st.tuples(st.integers(0, 300), st.one_of(st.just(1), st.integers(1, 80))),
        min_size=1,
        max_size=6,
    ),
    block_size=st.sampled_from([1, 8, 13, 16, 64, 256]),
    heads=st.sampled_from([(1, 1), (6, 2), (8, 8), (7, 1)]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
    way=st.sampled_from([*WAYS]),
    seed=st.integers(0, 9),
)
@some
def test_any_mix_agrees_with_the_loop(sequences, block_size, heads, dtype, way, seed):
    batch = batch_for(
        way,
        sequences,
        dtype=dtype,
        block_size=block_size if way == "flashinfer" else 256,
        num_q_heads=heads[0],
        num_kv_heads=heads[1],
        seed=seed,
    )
    before = copy.deepcopy(tensors(batch))
    fused = functools.partial(by_stand_in, way=way)
    assert_agrees(compare_batches("any", [batch], fused=fused))
    for name in TENSORS:  # nothing given is changed
        assert torch.equal(before[name], tensors(batch)[name])
    for field in dataclasses.fields(BatchMetadata):
        was, now = (getattr(each["metadata"], field.name) for each in (before, tensors(batch)))
        assert torch.equal(was, now)


@on_ways
def test_one_plan_serves_all_layers_and_leaves_another_alone(way):
    """Each layer has other numbers at the same places."""
    batches = [batch_for(way, seed=1), batch_for(way, ((3, 2), (0, 40)), seed=2)]
    with stand_ins():
        plans = [
            WAYS[way].plan(batch.metadata, batch.q, batch.kv_cache[0]) for batch in batches
        ]
        for number in range(3):
            for attend, batch in zip(plans, batches, strict=True):
                batch.kv_cache = batch.kv_cache.roll(number, -1)
                expected = attn_paged_torch(**tensors(batch))
                o = attend(batch.q, *batch.kv_cache)
                torch.testing.assert_close(o, expected, rtol=0, atol=4e-3)


# What does not fit


def narrow(batch, head_size):
    return {
        name: tensors(batch)[name][..., :head_size] for name in ("q", "k_cache", "v_cache")
    }


def of_dtype(batch, dtype):
    return {name: tensors(batch)[name].to(dtype) for name in TENSORS}


def table_of(batch, change):
    table = change(batch.metadata.block_table)
    return dict(metadata=dataclasses.replace(batch.metadata, block_table=table))


@on_ways
@pytest.mark.parametrize(
    "change, error, words",
    [
        (lambda batch: of_dtype(batch, torch.float32), TypeError, "q must be torch.float16"),
        (lambda batch: of_dtype(batch, torch.float64), TypeError, "q must be torch.float16"),
        (lambda batch: narrow(batch, 30), ValueError, "head_size.* must be .*, not 30"),
        (lambda batch: dict(q=batch.q[:, :5]), ValueError, "the cache's 2 KV heads"),
        (lambda batch: dict(k_cache=batch.kv_cache[0].double()), TypeError, "v_cache must be"),
        (lambda batch: table_of(batch, torch.Tensor.long), TypeError, "block_table"),
        (lambda batch: table_of(batch, torch.neg), ValueError, "block_table, row 0, holds -"),
        (lambda batch: {}, ValueError, "q must be on a GPU for .*, not on cpu"),
    ],
)
def test_what_a_way_cannot_do_is_refused_by_name(way, change, error, words):
    batch = batch_for(way)
    refused(error, words, check_fused, **tensors(batch) | change(batch), way=way)


@pytest.mark.parametrize("way", ["flash_attn", "varlen_attn"])
def test_blocks_of_16_are_refused_by_those_that_take_256(way):
    words = f"block_size must be a multiple of 256 for {way}, not 16"
    refused(ValueError, words, check_fused, **tensors(batch_for("flashinfer")), way=way)


def test_the_head_sizes_that_a_way_takes_are_those_that_it_names():
    taken = [size for size in range(1, 600) if WAYS["flashinfer"].fits(size)]
    assert taken == list(map(int, re.findall(r"\d+", WAYS["flashinfer"].head_sizes)))
    for way in ("flash_attn", "varlen_attn"):
        step, most = map(int, re.findall(r"\d+", WAYS[way].head_sizes))
        taken = [size for size in range(1, 600) if WAYS[way].fits(size)]
        assert taken == list(range(step, most + 1, step))


@without_gpu
@on_ways
def test_a_machine_without_a_gpu_is_told_so(way):
    assert fused_needs(way) == "a CUDA GPU"
    batch = batch_for(way)
    words = f"attn_paged_fused by {way} needs a CUDA GPU"
    refused(RuntimeError, words, attn_paged_fused, **tensors(batch), way=way)
    words = "path 'fused' needs a CUDA GPU"
    refused(RuntimeError, words, Engine, load_model(), path="fused")
    assert set(NEEDS) < set(PATHS)


@pytest.mark.parametrize(
    ("capability", "needs"),
    [((7, 5), "a GPU of compute capability 8.0 or more"), ((8, 0), None), ((9, 0), None)],
)
def test_which_gpus_are_enough(monkeypatch, capability, needs):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with stand_ins():
        assert fused_needs() == needs


def test_an_unknown_way_is_refused():
    words = "way must be one of flashinfer, flash_attn, varlen_attn, not 'magic'"
    refused(ValueError, words, fused_needs, "magic")
    refused(ValueError, words, FusedAttention, batch_for("flashinfer").metadata, "magic")


def names(function):
    return set(inspect.signature(inspect.unwrap(function)).parameters)


def test_pytorch_takes_what_the_stand_in_does():
    from torch.nn.attention.varlen import varlen_attn as real

    if "block_table" not in names(real):
        assert "whose varlen_attn takes a block_table" in WAYS["varlen_attn"].missing()
        pytest.skip(f"PyTorch {torch.__version__} has no block_table there")
    assert names(varlen_attn) <= names(real)


def test_flash_attn_takes_what_the_stand_ins_do():
    real = pytest.importorskip("flash_attn")
    for stand_in in (flash_attn_varlen_func, flash_attn_with_kvcache):
        assert names(stand_in) <= names(getattr(real, stand_in.__name__))


# On a GPU


@needs_fused
def test_flashinfer_takes_what_the_stand_in_does():
    import flashinfer

    real = flashinfer.BatchPrefillWithPagedKVCacheWrapper
    for name in ("__init__", "plan", "run"):
        assert names(getattr(FlashInferWrapper, name)) <= names(getattr(real, name))


@needs_fused
def test_a_layer_of_another_shape_is_refused():
    batch = batch_for("flashinfer", device="cuda")
    attend = FusedAttention(batch.metadata)
    attend(batch.q, *batch.kv_cache)
    words = "was planned for q, k_cache and v_cache of"
    refused(ValueError, words, attend, batch.q[1:], *batch.kv_cache)


@needs_fused
@pytest.mark.parametrize("dtype, head_size", SHAPES, ids=str)
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_call_is_the_loop(dtype, head_size, name):
    assert_agrees(compare_batches(name, [Batch(SCENARIOS[name], dtype, head_size, 16)]))


@needs_fused
@pytest.mark.parametrize(
    "dtype, head_size", [(torch.float16, 64), (torch.bfloat16, 128)], ids=str
)
def test_random_mixes_are_the_loop(dtype, head_size):
    for batch in random_batches(dtype, head_size):
        assert_agrees(compare_batches(str(batch.metadata.seq_lens_kv.tolist()), [batch]))


@needs_fused
def test_a_layer_after_the_other_in_a_stream_of_its_own():
    batch = Batch(MIX, torch.float16, HEAD_SIZE, 16)
    stream = torch.cuda.Stream()
    expected = batch.attend(attn_paged_torch)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        attend = FusedAttention(batch.metadata)
        results = [attend(batch.q, *batch.kv_cache) for _ in range(3)]
    stream.synchronize()
    for result in results:
        torch.testing.assert_close(
            result, expected, rtol=0, atol=LARGEST_DIFFERENCE["float16"]
        )


@needs_fused
@pytest.mark.gpu(2)
def test_the_second_gpu():
    batch = Batch(MIX, torch.float16, HEAD_SIZE, 16, device="cuda:1")
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(
        batch.attend(attn_paged_fused), batch.attend(attn_paged_torch), rtol=0, atol=4e-3
    )


@pytest.mark.gpu
@pytest.mark.parametrize("path", sorted(PATHS.keys() - CPU_ONLY))
def test_every_path_gives_the_tokens_of_transformers_in_16_bits(path):
    if path in NEEDS and NEEDS[path]():
        pytest.skip(f"needs {NEEDS[path]()}")
    found = measure_paths("cuda", [path])
    (row,), expected = found["paths"], found["expected"]
    assert min(map(len, expected)) >= 20 and row.texts == expected and all(row.same.values())
    assert found["margin"] > 4
