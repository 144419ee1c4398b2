"""Attention in one call of a library: the library itself on a GPU, elsewhere a stand-in.

A stand-in has the library's signature. It computes attention from the documented arguments, in
float64 and in its own way. So a wrong argument gives a wrong result even without a GPU.
"""

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import re
import sys
import types
from importlib.machinery import ModuleSpec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from lessons_bench.path_b import (
    HEAD_SIZE,
    SCENARIOS,
    SET_UPS,
    SHAPES,
    Batch,
    compare_batches,
    measure_paths,
    random_batches,
)
from lessons_bench.path_b_runs import LARGEST_DIFFERENCE, LARGEST_ERROR
from paged_attention import fused
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import NEEDS, PATHS
from paged_attention.fused import WAYS, FusedAttention, attn_paged_fused, fused_needs
from paged_attention.metadata import BatchMetadata, attn_paged_torch
from paged_attention.tiny_qwen3.tasks import encode
from paged_attention.tiny_qwen3.wider import with_head_size

pytestmark = pytest.mark.usefixtures("one_thread")
few = settings(max_examples=30, deadline=None, derandomize=True)
needs_fused = pytest.mark.skipif(fused_needs() is not None, reason=f"needs {fused_needs()}")
on_ways = pytest.mark.parametrize("way", WAYS)
MIX = SCENARIOS["a mix of both"]


# Stand-ins. Each asks for what its library's documentation asks for.


def last_queries(q, k, v):
    """The queries are the last tokens: q (q_len, heads, head_size), k and v (kv_len, KV heads,
    head_size).
    """
    assert 1 <= len(q) <= len(k)
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    heads_first = (x.double().transpose(0, 1)[None] for x in (q, k, v))
    return (
        scaled_dot_product_attention(*heads_first, attn_mask=visible, enable_gqa=True)[0]
        .transpose(0, 1)
        .to(q.dtype)
    )


def assert_index(tensor, *shape):
    assert (
        tensor.dtype == torch.int32 and tensor.is_contiguous() and tuple(tensor.shape) == shape
    )


class FlashInferWrapper:
    """flashinfer.BatchPrefillWithPagedKVCacheWrapper of 0.7.2."""

    made = []

    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        qo_indptr_buf=None,
        paged_kv_indptr_buf=None,
        paged_kv_indices_buf=None,
        paged_kv_last_page_len_buf=None,
        custom_mask_buf=None,
        mask_indptr_buf=None,
        backend="auto",
        jit_args=None,
        jit_kwargs=None,
        variant_owns_mask=False,
    ):
        assert (
            float_workspace_buffer.dtype == torch.uint8
            and len(float_workspace_buffer) >= 128 * 1024 * 1024
        )
        assert kv_layout == "NHD"
        self.num_plans, self.num_runs = 0, 0
        self.made.append(self)

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        head_dim_vo=None,
        custom_mask=None,
        packed_custom_mask=None,
        causal=False,
        pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        rope_scale=None,
        rope_theta=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        non_blocking=True,
        prefix_len_ptr=None,
        token_pos_in_items_ptr=None,
        token_pos_in_items_len=0,
        max_item_len_ptr=None,
        seq_lens=None,
        seq_lens_q=None,
        block_tables=None,
        max_token_per_sequence=None,
        max_sequence_kv=None,
        fixed_split_size=None,
        disable_split_kv=False,
        uniform_q_len=None,
    ):
        num_seqs = len(qo_indptr) - 1
        assert_index(qo_indptr, num_seqs + 1)
        assert_index(paged_kv_indptr, num_seqs + 1)
        assert_index(paged_kv_indices, int(paged_kv_indptr[-1]))
        assert_index(paged_kv_last_page_len, num_seqs)
        assert (
            paged_kv_indptr[0] == 0
            and (paged_kv_indptr.diff() >= 1).all()
            and (paged_kv_indices >= 0).all()
        )
        assert (paged_kv_last_page_len >= 1).all() and (
            paged_kv_last_page_len <= page_size
        ).all()
        assert (
            causal
            and sm_scale in (None, 1 / math.sqrt(head_dim_qk))
            and head_dim_vo in (None, head_dim_qk)
        )
        self.planned = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        self.sizes = (
            num_qo_heads,
            num_kv_heads,
            head_dim_qk,
            page_size,
            q_data_type,
            kv_data_type or q_data_type,
        )
        self.num_plans += 1

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        lse_base="log2",
        lse_layout="NH",
        enable_pdl=None,
        window_left=None,
        sinks=None,
        kv_cache_sf=None,
        skip_softmax_threshold_scale_factor=None,
        use_fp16_softmax=None,
        uses_spcompress=None,
    ):
        k_cache, v_cache = paged_kv_cache
        _, page_size, num_kv_heads, head_size = k_cache.shape
        assert self.sizes == (
            q.shape[1],
            num_kv_heads,
            head_size,
            page_size,
            q.dtype,
            k_cache.dtype,
        )
        assert (
            k_cache.shape == v_cache.shape
            and k_cache.stride() == v_cache.stride()
            and q.is_contiguous()
        )
        self.num_runs += 1
        starts, firsts, ids, last_lens = (tensor.tolist() for tensor in self.planned)
        outputs = []
        for seq, last_len in enumerate(last_lens):
            pages = ids[firsts[seq] : firsts[seq + 1]]
            length = (len(pages) - 1) * page_size + last_len
            k, v = (cache[pages].flatten(0, 1)[:length] for cache in paged_kv_cache)
            outputs.append(last_queries(q[starts[seq] : starts[seq + 1]], k, v))
        return torch.cat(outputs)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """flash_attn's, of 2.8: the mask is aligned to the last query and the last key; blocks are
    of 256 tokens.
    """
    assert causal and dropout_p == 0.0 and softmax_scale is None and not return_attn_probs
    return through_table(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table
    )


def varlen_attn(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    return_aux=None,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """PyTorch's, of 2.12 and 2.13."""
    assert (
        window_size == (-1, 0)
        and scale is None
        and return_aux is None
        and enable_gqa
        and num_splits == 1
    )
    assert_index(seqused_k, len(cu_seq_q) - 1)
    assert torch.equal(cu_seq_k.diff(), seqused_k)
    return through_table(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, block_table)


def through_table(q, k_cache, v_cache, starts, ends, max_q, max_k, table):
    num_seqs, block_size = len(starts) - 1, k_cache.shape[1]
    for tensor in (starts, ends):
        assert_index(tensor, num_seqs + 1)
    assert_index(table, num_seqs, table.shape[1])
    assert block_size % 256 == 0 and (table >= 0).all() and (table < len(k_cache)).all()
    assert (type(max_q), max_q, type(max_k), max_k) == (
        int,
        starts.diff().max(),
        int,
        ends.diff().max(),
    )
    assert q.is_contiguous() and k_cache.stride(-1) == v_cache.stride(-1) == 1
    outputs = []
    for seq, length in enumerate(ends.diff().tolist()):
        k, v = (
            cache[table[seq, : -(-length // block_size)]].flatten(0, 1)[:length]
            for cache in (k_cache, v_cache)
        )
        outputs.append(last_queries(q[starts[seq] : starts[seq + 1]], k, v))
    return torch.cat(outputs)


@contextlib.contextmanager
def stand_ins_for_all():
    """All three libraries, on the CPU."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        FlashInferWrapper.made.clear()
        for name, content in (
            ("flashinfer", {"BatchPrefillWithPagedKVCacheWrapper": FlashInferWrapper}),
            ("flash_attn", {"flash_attn_varlen_func": flash_attn_varlen_func}),
        ):
            module = types.ModuleType(name)
            # transformers looks for libraries by their spec
            vars(module).update(content, __spec__=ModuleSpec(name, None))
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
        monkeypatch.setattr(fused, "fused_needs", lambda way: None)
        monkeypatch.setattr(fused, "DEVICE", "cpu")
        yield


@pytest.fixture
def stand_ins():
    with stand_ins_for_all():
        yield


def batch_for(
    way, sequences=MIX, head_size=64, dtype=torch.float16, block_size=16, device="cpu", **more
):
    """With the block size, or for a way that takes multiples of 256 only with such a one."""
    return Batch(
        sequences,
        dtype,
        head_size,
        math.lcm(block_size, WAYS[way].block_sizes),
        device=device,
        **more,
    )


def tensors(batch):
    return dict(
        q=batch.q,
        k_cache=batch.kv_cache[0],
        v_cache=batch.kv_cache[1],
        metadata=batch.metadata,
    )


def assert_agrees(row):
    assert (
        row.difference <= LARGEST_DIFFERENCE[row.dtype]
        and row.error <= LARGEST_ERROR[row.dtype]
    ), row
    assert row.same_when_poisoned, row


@on_ways
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_way_agrees_with_the_loop_by_its_librarys_signature(stand_ins, way, name):
    batch = batch_for(way, SCENARIOS[name])
    assert_agrees(
        compare_batches(name, [batch], fused=functools.partial(attn_paged_fused, way=way))
    )


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
@few
def test_any_mix_agrees_with_the_loop(sequences, block_size, heads, dtype, way, seed):
    with stand_ins_for_all():
        batch = batch_for(
            way,
            sequences,
            dtype=dtype,
            block_size=block_size if way == "flashinfer" else 256,
            num_q_heads=heads[0],
            num_kv_heads=heads[1],
            seed=seed,
        )
        assert_agrees(
            compare_batches("any", [batch], fused=functools.partial(attn_paged_fused, way=way))
        )


def test_a_batch_is_planned_once_for_all_layers(stand_ins):
    batch = batch_for("flashinfer")
    attend = FusedAttention(batch.metadata)
    for number in range(3):  # each layer has other numbers at the same places
        batch.kv_cache = batch.kv_cache.roll(number, -1)
        torch.testing.assert_close(
            attend(batch.q, *batch.kv_cache),
            attn_paged_torch(**tensors(batch)),
            rtol=0,
            atol=4e-3,
        )
    (wrapper,) = FlashInferWrapper.made
    assert (wrapper.num_plans, wrapper.num_runs) == (1, 3)


def test_two_plans_at_once_do_not_disturb_each_other(stand_ins):
    one = batch_for("flashinfer", seed=1)
    other = batch_for("flashinfer", ((3, 2), (0, 40)), seed=2)
    paths = [FusedAttention(batch.metadata) for batch in (one, other)]
    for _ in range(2):
        for path, batch in zip(paths, (one, other), strict=True):
            torch.testing.assert_close(
                path(batch.q, *batch.kv_cache),
                attn_paged_torch(**tensors(batch)),
                rtol=0,
                atol=4e-3,
            )


def test_a_layer_of_another_shape_is_refused(stand_ins):
    attend = FusedAttention(batch_for("flashinfer").metadata)
    batch = batch_for("flashinfer")
    attend(batch.q, *batch.kv_cache)
    with pytest.raises(ValueError, match="was planned for q, k_cache and v_cache of"):
        attend(batch.q[1:], *batch.kv_cache)


def test_a_query_that_is_not_contiguous_is_the_same(stand_ins):
    """The models of transformers give a query with the heads before the tokens."""
    batch = batch_for("flashinfer")
    q = batch.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not q.is_contiguous()
    assert torch.equal(
        attn_paged_fused(**tensors(batch) | {"q": q}), attn_paged_fused(**tensors(batch))
    )


def test_nothing_given_is_changed(stand_ins):
    batch = batch_for("varlen_attn")
    before = copy.deepcopy(tensors(batch))
    for way in WAYS:
        attn_paged_fused(**tensors(batch), way=way)
    after = tensors(batch)
    assert all(torch.equal(before[name], after[name]) for name in ("q", "k_cache", "v_cache"))
    assert all(
        torch.equal(
            getattr(before["metadata"], field.name), getattr(after["metadata"], field.name)
        )
        for field in dataclasses.fields(BatchMetadata)
    )


# What does not fit


def of_dtype(dtype):
    return lambda q, k_cache, v_cache, metadata: dict(
        q=q.to(dtype), k_cache=k_cache.to(dtype), v_cache=v_cache.to(dtype)
    )


def with_metadata(change):
    return lambda q, k_cache, v_cache, metadata: dict(
        metadata=dataclasses.replace(metadata, **change(metadata))
    )


@pytest.mark.parametrize(
    "way, change, error, words",
    [
        *(
            (
                way,
                of_dtype(dtype),
                TypeError,
                f"q must be torch.float16 or torch.bfloat16 for {way}, not {dtype}",
            )
            for way in WAYS
            for dtype in (torch.float32, torch.float64)
        ),
        (
            "flashinfer",
            lambda q, k_cache, v_cache, metadata: dict(
                q=q[..., :32], k_cache=k_cache[..., :32], v_cache=v_cache[..., :32]
            ),
            ValueError,
            "head_size, q's last dimension, must be 64, 128 or 256 for flashinfer, not 32",
        ),
        (
            "flash_attn",
            lambda q, k_cache, v_cache, metadata: dict(
                q=q[..., :30], k_cache=k_cache[..., :30], v_cache=v_cache[..., :30]
            ),
            ValueError,
            "must be a multiple of 8 up to 256 for flash_attn, not 30",
        ),
        (
            "flashinfer",
            lambda q, k_cache, v_cache, metadata: dict(k_cache=k_cache.to(torch.bfloat16)),
            TypeError,
            "v_cache must be",
        ),
        (
            "flashinfer",
            lambda q, k_cache, v_cache, metadata: dict(q=q[:, :5]),
            ValueError,
            "a multiple of the cache's 2 KV heads",
        ),
        (
            "flashinfer",
            lambda q, k_cache, v_cache, metadata: dict(
                k_cache=k_cache.transpose(0, 1).contiguous().transpose(0, 1)
            ),
            ValueError,
            "k_cache must be contiguous",
        ),
        (
            "flashinfer",
            with_metadata(lambda metadata: dict(block_table=metadata.block_table.long())),
            TypeError,
            "block_table",
        ),
        (
            "flashinfer",
            with_metadata(lambda metadata: dict(seq_lens_kv=metadata.seq_lens_kv[:0])),
            ValueError,
            "at least one",
        ),
        (
            "flashinfer",
            with_metadata(
                lambda metadata: dict(block_table=metadata.block_table.clone().fill_(-1))
            ),
            ValueError,
            "block_table, row 0, holds -1",
        ),
        (
            "flashinfer",
            with_metadata(
                lambda metadata: dict(seq_lens_kv=metadata.seq_lens_kv.clone().fill_(1))
            ),
            ValueError,
            "fewer than its 100 queries",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str | type) else None,
)
def test_what_a_way_cannot_do_is_refused_by_name(stand_ins, way, change, error, words):
    given = tensors(batch_for(way))
    with pytest.raises(error, match=re.escape(words)):
        attn_paged_fused(**given | change(**given), way=way)


@pytest.mark.parametrize("way", ["flash_attn", "varlen_attn"])
def test_blocks_of_16_are_refused_by_those_that_take_256(stand_ins, way):
    with pytest.raises(
        ValueError, match=f"block_size must be a multiple of 256 for {way}, not 16"
    ):
        attn_paged_fused(**tensors(batch_for("flashinfer")), way=way)


def test_tensors_on_the_cpu_are_refused(stand_ins, monkeypatch):
    monkeypatch.setattr(fused, "DEVICE", "cuda")
    with pytest.raises(ValueError, match="q must be on a GPU for flashinfer, not on cpu"):
        attn_paged_fused(**tensors(batch_for("flashinfer")))


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU and none of the libraries."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    monkeypatch.setattr(
        "torch.nn.attention.varlen.varlen_attn",  # that of PyTorch 2.10
        lambda query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False: None,
    )


@pytest.mark.parametrize(
    "way, needs",
    [
        ("flashinfer", "the package flashinfer-python, which is not installed"),
        ("flash_attn", "the package flash-attn, which is not installed"),
        ("varlen_attn", "a PyTorch whose varlen_attn takes a block_table; this one is 2."),
    ],
)
def test_what_the_machine_lacks_is_named(gpu, way, needs, monkeypatch):
    assert fused_needs(way).startswith(needs)
    with pytest.raises(RuntimeError, match=f"attn_paged_fused by {way} needs {needs}"):
        attn_paged_fused(**tensors(batch_for("flashinfer")), way=way)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert fused_needs(way) == "a GPU of compute capability 8.0 or more"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert fused_needs(way) == "a CUDA GPU"


def test_a_package_that_is_there_is_found(gpu, monkeypatch):
    monkeypatch.setattr(fused, "find_spec", lambda name: object())
    assert fused_needs("flashinfer") is None and fused_needs("flash_attn") is None
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    assert fused_needs("varlen_attn") is None


def test_an_unknown_way_is_refused():
    for call in (
        fused_needs,
        functools.partial(FusedAttention, batch_for("flashinfer").metadata),
    ):
        with pytest.raises(
            ValueError,
            match="way must be one of flashinfer, flash_attn, varlen_attn, not 'magic'",
        ):
            call("magic")


def test_an_engine_says_at_once_that_the_machine_cannot_take_the_path(gpu):
    with pytest.raises(
        RuntimeError,
        match="path 'fused' needs the package flashinfer-python, which is not installed",
    ):
        Engine(load_model(), path="fused")
    assert set(NEEDS) < set(PATHS)


def test_pytorchs_signature_is_the_one_that_the_stand_in_has():
    from torch.nn.attention.varlen import varlen_attn as real

    if "block_table" not in inspect.signature(real).parameters:
        pytest.skip(f"PyTorch {torch.__version__} has no block_table there")
    assert parameters(real) == parameters(varlen_attn)


def parameters(function):
    """Names, kinds and whether there is a default."""
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [
        (parameter.name, parameter.kind, parameter.default is parameter.empty)
        for parameter in found
    ]


# An engine


def test_wider_heads_say_the_same():
    small, row = load_model(), torch.tensor([encode("Ka17..q42......z93?zq>")])
    with torch.inference_mode():
        for head_size in (32, 64, 128, 96):
            wide = with_head_size(small, head_size)
            assert wide.config.head_dim == head_size and small.config.head_dim == 32
            torch.testing.assert_close(wide(row).logits, small(row).logits, rtol=0, atol=1e-4)
    for head_size in (16, 48, 0):
        with pytest.raises(ValueError, match=f"a multiple of the model's 32, not {head_size}"):
            with_head_size(small, head_size)


def test_the_engine_serves_on_the_stand_in(stand_ins, monkeypatch):
    """The real path, except for FlashInfer.

    It plans once a step, with transformers' queries.
    """
    monkeypatch.setitem(NEEDS, "fused", lambda: None)
    found = measure_paths("cpu", ["fused"])
    assert [row.same for row in found["paths"]] == [dict.fromkeys(SET_UPS, True)]
    assert found["margin"] > 4 and found["lead"] > 0.5  # so no token is decided by rounding
    # of four layers
    assert all(
        wrapper.num_plans == 1 and wrapper.num_runs == 4 for wrapper in FlashInferWrapper.made
    )


# On a GPU


@needs_fused
def test_the_real_signature_is_the_one_that_the_stand_in_has():
    import flashinfer

    real = flashinfer.BatchPrefillWithPagedKVCacheWrapper
    for name in ("__init__", "plan", "run"):
        names = [parameter[0] for parameter in parameters(getattr(real, name))]
        assert [
            parameter[0] for parameter in parameters(getattr(FlashInferWrapper, name))
        ] == names


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
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_the_second_gpu():
    batch = Batch(MIX, torch.float16, HEAD_SIZE, 16, device="cuda:1")
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(
        batch.attend(attn_paged_fused), batch.attend(attn_paged_torch), rtol=0, atol=4e-3
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("path", PATHS)
def test_every_path_gives_the_tokens_of_transformers_in_16_bits(path):
    if path in NEEDS and NEEDS[path]():
        pytest.skip(f"needs {NEEDS[path]()}")
    found = measure_paths("cuda", [path])
    (row,), expected = found["paths"], found["expected"]
    assert min(map(len, expected)) >= 20 and row.texts == expected and all(row.same.values())
    assert found["margin"] > 4


def test_the_head_sizes_that_a_way_takes_are_those_that_it_names():
    taken = [size for size in range(1, 600) if WAYS["flashinfer"].fits(size)]
    assert taken == [
        int(number) for number in re.findall(r"\d+", WAYS["flashinfer"].head_sizes)
    ]
    for way in ("flash_attn", "varlen_attn"):
        step, most = map(int, re.findall(r"\d+", WAYS[way].head_sizes))
        assert [size for size in range(1, 600) if WAYS[way].fits(size)] == list(
            range(step, most + 1, step)
        )


@pytest.mark.parametrize(
    ("capability", "enough"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_which_gpus_are_enough(monkeypatch, capability, enough):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setitem(
        WAYS, "flashinfer", dataclasses.replace(WAYS["flashinfer"], missing=lambda: None)
    )
    assert fused_needs() == (None if enough else "a GPU of compute capability 8.0 or more")
