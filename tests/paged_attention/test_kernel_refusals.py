"""Arguments that attention over blocks refuses in each library: by name, before any launch."""

import math
from dataclasses import replace

import pytest
import torch

from batch_metadata import metadata_of
from decode_calls import (
    BFLOAT,
    CACHE,
    FLOAT,
    LENS,
    MODEL,
    TABLE,
    Q,
    at_an_odd_place,
    shape,
)
from int32 import integers
from launches import Launches
from paged_attention.attention.metadata import attn_paged_torch
from paged_attention.attention.paged_kernel import attn_paged_cuda
from paged_attention.ladder.decode import FP8, RUNGS, PagedDecode, attn_paged_fast
from paged_attention.ladder.rungs import rung_library
from paged_attention.ladder.self_planned import SelfPlannedDecode
from paged_attention.prefill.kernels import PagedPrefill, attn_paged_prefill
from paged_attention.prefill.rungs import PREFILL_RUNGS, prefill_library
from refused import refused

SCALES = torch.ones(2)
RIGHT = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE)
METADATA = metadata_of(((1, 5), (1, 4)), TABLE)  # one query of each sequence


# The same batch for all who compute it. `lens` changes the number of keys.


def by_torch(block_table=TABLE, lens=LENS, attend=attn_paged_torch, starts=None, **tensors):
    given = replace(METADATA, block_table=block_table, seq_lens_kv=lens)
    if starts is not None:
        given = replace(given, cu_seqlens_q=starts)
    attend(**tensors, metadata=given)


def by_prefill(**changes):
    by_torch(**changes, attend=attn_paged_prefill)


def by_cuda(lens=LENS, **tensors):
    launches = Launches()
    try:
        attn_paged_cuda(**tensors, context_lens=lens, library=launches)
    except (TypeError, ValueError):
        assert not launches.names
        raise


def by_fast(lens=LENS, **tensors):
    attn_paged_fast(**tensors, context_lens=lens, target="fast")


def by_rung(number, **tensors):
    launches = Launches()
    decode = PagedDecode(number, LENS, **MODEL, library=launches)
    launches.names.clear()
    try:
        decode(**tensors)
    except (TypeError, ValueError):
        assert not launches.names
        raise


def by_rung_2(**tensors):
    by_rung(2, **tensors)


def by_rung_7(**tensors):
    by_rung(7, **tensors)


def by_rung_9(**tensors):
    """What looks like right tensors is not checked again, and what does not is."""
    decode = SelfPlannedDecode(2, **MODEL, device="cpu", library=Launches())
    decode.plan(LENS)
    decode(**RIGHT)
    decode(**tensors)


def by_planned_prefill(block_table=TABLE, **tensors):
    lengths = METADATA.cu_seqlens_q, METADATA.seq_lens_kv
    planned = PagedPrefill(4, *lengths, **MODEL, library=Launches())
    planned(**RIGHT)
    planned(**tensors, block_table=block_table)


EVERYBODY = (
    by_torch,
    by_cuda,
    by_rung_2,
    by_rung_7,
    by_rung_9,
    by_fast,
    by_prefill,
    by_planned_prefill,
)
TORCH, KERNELS = EVERYBODY[:1], EVERYBODY[1:]
CHUNKS = (by_rung_2, by_rung_7, by_rung_9, by_fast, by_prefill, by_planned_prefill)
READERS = (by_torch, by_cuda, by_fast, by_prefill)
KNOW_LENGTHS = (by_rung_2, by_rung_7, by_planned_prefill)
PLANNED = (by_rung_2, by_rung_7, by_rung_9, by_planned_prefill)


def of_blocks(num_blocks):
    """A cache of very many blocks that are all the same one; a block has 32 rows."""
    return CACHE[:1].expand(num_blocks, -1, -1, -1)


HEADS_APART = Q.transpose(1, 2).contiguous().transpose(1, 2)
ROWS_APART = CACHE.repeat(1, 1, 1, 2)[..., :128]
ROWS_AT_8 = torch.zeros(2, 1028).half()[:, :1024].view(2, 8, 128)
ENTRIES_APART = TABLE.repeat(1, 2)[:, :1]
PAST_THE_POOL = integers(0, 3).view(2, 1)
REFUSED = [
    (EVERYBODY, "q", Q[0], ValueError, "q must have the shape"),
    (EVERYBODY, "q", Q[:, :7], ValueError, "2 KV heads, not 7|8, 128"),
    (EVERYBODY, "q", Q[:, :0], ValueError, "2 KV heads, not 0|8, 128"),
    (EVERYBODY, "q", Q[..., :64], ValueError, "(q|k_cache) must have the shape"),
    (EVERYBODY, "q", Q.float(), TypeError, "must be torch.float"),
    (EVERYBODY, "k_cache", CACHE[0], ValueError, "k_cache must have the shape"),
    (EVERYBODY, "k_cache", CACHE.float(), TypeError, "must be torch.float"),
    (EVERYBODY, "v_cache", CACHE[:2], ValueError, "v_cache must have the shape .3, 16, 2,"),
    (EVERYBODY, "v_cache", CACHE.bfloat16(), TypeError, "v_cache must be torch.float16"),
    (EVERYBODY, "block_table", TABLE.long(), TypeError, "block_table must be torch.int32"),
    (EVERYBODY, "block_table", [[0], [0]], TypeError, "block_table must be a tensor"),
    (EVERYBODY, "block_table", TABLE[:1], ValueError, "block_table must have the shape .2,"),
    (EVERYBODY, "block_table", TABLE[:, 0], ValueError, "block_table must have the shape"),
    (KERNELS, "q", Q.to("meta"), ValueError, "must be on .*device"),
    (KERNELS, "k_cache", CACHE.to("meta"), ValueError, "k_cache must be on .* device, cpu"),
    (KERNELS, "v_cache", CACHE.to("meta"), ValueError, "v_cache must be on .* device, cpu"),
    (KERNELS, "block_table", TABLE.to("meta"), ValueError, "block_table must be on .* device"),
    (KERNELS, "q", HEADS_APART, ValueError, r"q must hold .*q.contiguous\(\)"),
    (KERNELS, "k_cache", ROWS_APART, ValueError, r"k_cache must be contiguous.*k_cache.cont"),
    (KERNELS, "v_cache", ROWS_APART, ValueError, "v_cache must be contiguous"),
    (KERNELS, "block_table", ENTRIES_APART, ValueError, "block_table must be cont"),
    (CHUNKS, "q", at_an_odd_place(Q), ValueError, "q must begin, with each of its rows, .*16"),
    (CHUNKS, "q", ROWS_AT_8, ValueError, "q must begin, with each of its rows"),
    (CHUNKS, "k_cache", at_an_odd_place(CACHE), ValueError, "k_cache must begin"),
    (CHUNKS, "v_cache", at_an_odd_place(CACHE), ValueError, "v_cache must begin"),
    (PLANNED, "out", at_an_odd_place(Q), ValueError, "out must begin"),
    (PLANNED, "out", Q.float(), TypeError, "out must be torch.float16"),
    (PLANNED, "out", Q[:1], ValueError, "out must have the shape .2, 8, 128"),
    (PLANNED, "q", Q[:1], ValueError, "q must have the shape .2, 8, 128|the 1 tokens of q"),
    (PLANNED, "k_cache", CACHE[:, :8], ValueError, "k_cache must have the shape"),
    (PLANNED, "k_cache", CACHE[:, :, :1], ValueError, "k_cache must have the shape"),
    (KNOW_LENGTHS, "block_table", TABLE[:, :0], ValueError, "0 entries .* 5 tokens"),
    (READERS, "block_table", TABLE[:, :0], ValueError, "5 (keys|tokens), which need 1 blocks"),
    (READERS, "block_table", PAST_THE_POOL, ValueError, "row 1, holds 3 .entry 0.*0 to 2"),
    (READERS, "block_table", TABLE - 1, ValueError, "row 0, holds -1 .*0 to 2"),
    (READERS, "lens", integers(5, 17), ValueError, "sequence 1 17 .* need 2 blocks"),
    (READERS, "lens", integers(5, -1), ValueError, "-1"),
    (READERS, "lens", LENS.long(), TypeError, "must be torch.int32"),
    (READERS, "lens", LENS[:1], ValueError, "must have the shape"),
    (KERNELS[:1], "lens", LENS.repeat(2)[::2], ValueError, "context_lens must be contiguous"),
    (KERNELS[:1], "lens", LENS.to("meta"), ValueError, "context_lens must be on q's device"),
    ((by_cuda, by_fast), "q", 3, TypeError, "q must be a tensor, not int"),
    ((by_cuda, by_fast), "q", torch.tensor(3.0), ValueError, "q must have the shape"),
    ((by_cuda, by_fast), "q", Q[:0], ValueError, "q is empty"),
    ((by_rung_7, by_rung_9), "k_scales", SCALES, ValueError, "k_scales .* for torch.float"),
    ((by_rung_7, by_rung_9), "v_scales", SCALES, ValueError, "v_scales .* for torch.float"),
    (TORCH, "starts", integers(0, 1, 2).long(), TypeError, "cu_seqlens_q must be torch.i"),
    (TORCH, "starts", integers(1, 2), ValueError, r"have the shape \(3,\), not \(2,"),
    (TORCH, "starts", integers(1, 1, 2), ValueError, "2 tokens of q, not from 1 to 2"),
    (TORCH, "starts", integers(0, 1, 3), ValueError, "2 tokens of q, not from 0 to 3"),
    (TORCH, "starts", integers(0, 2, 2), ValueError, "1 0 queries; it must be 1"),
    (TORCH, "starts", integers(0, 3, 2), ValueError, "1 -1 queries; it must be 1"),
    ((by_fast,), "k_cache", CACHE.to(FP8), TypeError, "v_cache must be torch.float8"),
    ((by_prefill,), "scale", math.inf, ValueError, "scale must be a finite number, not inf"),
]
CASES = [(call, *row) for calls, *row in REFUSED for call in calls]


@pytest.mark.parametrize(
    "call, name, value, error, words",
    CASES,
    ids=[f"{call.__name__}-{name}-{words[:24]}" for call, name, _, _, words in CASES],
)
def test_a_wrong_argument_is_refused(call, name, value, error, words):
    refused(error, words, call, **RIGHT | {name: value})


@pytest.mark.parametrize("call", EVERYBODY, ids=lambda call: call.__name__)
def test_the_right_arguments_are_right(call):
    call(**RIGHT)


@pytest.mark.parametrize("name", ["k_cache", "v_cache", "block_table", "lens"])
def test_a_call_that_was_refused_harms_no_later_one(name):
    wrong = RIGHT | dict(lens=LENS)
    wrong[name] = wrong[name].double()
    by_fast(**RIGHT)
    for _ in range(2):
        refused(TypeError, name.replace("lens", "context_lens"), by_fast, **wrong)
    by_fast(**RIGHT)


@pytest.mark.parametrize(
    "num_blocks, words", [(2**26, "2147483648 rows"), (2**26 - 1, "cont")]
)
@pytest.mark.parametrize("call", [by_rung_7, by_rung_9, by_planned_prefill, by_prefill])
def test_a_cache_has_fewer_rows_than_an_int_can_count(call, num_blocks, words):
    cache = of_blocks(num_blocks)
    refused(ValueError, words, call, **RIGHT | dict(k_cache=cache, v_cache=cache))


def test_fp8_caches_come_with_their_factors():
    cache = CACHE.to(FP8)
    right = RIGHT | dict(k_cache=cache, v_cache=cache, k_scales=SCALES, v_scales=SCALES)
    for number in (8, 9):
        decode = PagedDecode(number, LENS, **MODEL, kv_dtype=FP8, library=Launches())
        decode(**right)
        for name in ("k_scales", "v_scales"):
            for value, error, words in (
                (None, TypeError, "tensor"),
                (SCALES[:1], ValueError, r"\(2,\)"),
                (SCALES.half(), TypeError, "float32"),
                (torch.ones(4)[::2], ValueError, "contiguous"),
                (SCALES.to("meta"), ValueError, "device"),
            ):
                refused(error, f"{name}.*{words}", decode, **right | {name: value})


def test_rung_9_is_called_for_what_it_planned():
    decode = SelfPlannedDecode(4, **MODEL, device="cpu", library=Launches())
    refused(RuntimeError, "call plan", decode, **RIGHT)
    decode.plan(LENS)
    decode(**RIGHT)
    decode.plan(LENS[:1])
    refused(ValueError, r"q must have the shape \(1, 8, 128\)", decode, **RIGHT)


# What the rungs are made for, and plan for.


def decode_7(context_lens=LENS, number=7, **changes):
    PagedDecode(number, context_lens, **MODEL | changes, library=Launches())


def decode_9(max_num_seqs=4, context_lens=LENS, **changes):
    decode = SelfPlannedDecode(
        max_num_seqs, **dict(device="cpu") | MODEL | changes, library=Launches()
    )
    decode.plan(context_lens)


def prefill_4(starts=METADATA.cu_seqlens_q, kv_lens=LENS, number=4, **changes):
    PagedPrefill(number, starts, kv_lens, **MODEL | changes, library=Launches())


def paged(head_size=8, cache=(3, 4, 2), dtype=FLOAT):
    k_cache, v_cache = torch.zeros(2, *cache, head_size, dtype=dtype)
    q = torch.zeros(2, 4, head_size, dtype=dtype)
    by_cuda(q=q, k_cache=k_cache, v_cache=v_cache, block_table=TABLE)


def test_each_rung_takes_a_single_head():
    one = MODEL | dict(num_q_heads=1, num_kv_heads=1)
    for number, rung in enumerate(RUNGS):
        kv_dtype = FP8 if rung.fp8 == "always" else None
        PagedDecode(number, LENS, **one, kv_dtype=kv_dtype, library=Launches())
    for number in range(len(PREFILL_RUNGS)):
        prefill_4(number=number, num_q_heads=1, num_kv_heads=1)


def test_lengths_on_another_device_than_all_else_are_refused():
    lengths = METADATA.cu_seqlens_q, METADATA.seq_lens_kv
    planned = PagedPrefill(4, *lengths, **MODEL, library=Launches())
    with pytest.raises(ValueError, match="must be on seq_lens_kv.s device"):
        planned(**{name: tensor.to("meta") for name, tensor in RIGHT.items()})


ALL = (decode_7, decode_9, prefill_4)
NOT_MADE = [
    (ALL, dict(head_size=96), ValueError, "head_size must be 64 or 128 or 256.*, not 96"),
    (ALL, dict(num_q_heads=34), ValueError, "1 to 16 query heads, not 17"),
    (ALL, dict(num_q_heads=0), ValueError, "2 KV heads, not 0"),
    (ALL, dict(num_q_heads=-2), ValueError, "2 KV heads, not -2"),
    (ALL, dict(num_q_heads=7), ValueError, "num_q_heads must be a multiple of"),
    (ALL, dict(num_kv_heads=0), ValueError, "0 KV heads, not 8"),
    (ALL, dict(dtype=FLOAT), TypeError, "dtype must be torch.float16 or torch.bfloat16"),
    (ALL, dict(block_size=0), ValueError, "block_size must be .*, not 0"),
    (ALL[:2], dict(kv_dtype=BFLOAT), TypeError, "kv_dtype must be torch.float16 for rung"),
    (ALL[:2], dict(context_lens=LENS.long()), TypeError, "context_lens must be torch.int32"),
    (ALL[:2], dict(context_lens=LENS.repeat(2)[::2]), ValueError, "context_lens must be cont"),
    (ALL[:2], dict(context_lens=LENS[None]), ValueError, "context_lens must have the shape"),
    (ALL[:2], dict(context_lens=[5, 4]), TypeError, "context_lens must be a tensor, not list"),
    (ALL[:2], dict(context_lens=LENS[:0]), ValueError, "at least one|1 to 4 sequences"),
    (ALL[:1], dict(number=10), ValueError, "number must be .* 0 to 9, not 10"),
    (ALL[:1], dict(number=-1), ValueError, "number must be .* 0 to 9, not -1"),
    (ALL[:1], dict(kv_dtype=FP8), TypeError, "kv_dtype must be torch.float16 for rung 7"),
    (ALL[:1], dict(number=8), TypeError, "kv_dtype must be torch.float8_e4m3fn for rung 8"),
    (ALL[:1], dict(number=8, head_size=64, kv_dtype=FP8), ValueError, "128 or 256 for rung 8"),
    (ALL[:1], dict(number=8, dtype=BFLOAT, kv_dtype=FP8), TypeError, "^dtype must be torch"),
    (ALL[:1], dict(context_lens=LENS - 5), ValueError, "holds -1 for sequence 1"),
    (ALL[:1], dict(number=6, num_splits=0), ValueError, "num_splits must be positive, not 0"),
    (ALL[:1], dict(heads_at_once=4), ValueError, "heads_at_once must divide the 2 KV heads"),
    (ALL[:1], dict(heads_at_once=0), ValueError, "heads_at_once must .*, not 0"),
    (ALL[:1], dict(num_q_heads=3, num_kv_heads=3, heads_at_once=3), ValueError, "8 warps"),
    (ALL[:1], dict(num_blocks=0), ValueError, "num_blocks must be positive, not 0"),
    (ALL[1:2], dict(max_num_seqs=0), ValueError, "max_num_seqs must be 1 to 4096, not 0"),
    (ALL[1:2], dict(max_num_seqs=4097), ValueError, "max_num_seqs .* 1 to 4096, not 4097"),
    (ALL[1:2], dict(num_blocks=257), ValueError, "num_blocks must be 1 to 256, not 257"),
    (ALL[1:2], dict(num_blocks=0), ValueError, "num_blocks must be 1 to 256, not 0"),
    (ALL[1:2], dict(head_size=64, kv_dtype=FP8), ValueError, "must be 128 or 256 for rung 9"),
    (ALL[1:2], dict(context_lens=LENS.repeat(3)), ValueError, "1 to 4 sequences .*, not 6"),
    (ALL[1:2], dict(context_lens=LENS.to("meta")), ValueError, "context_lens .* on .*meta"),
    (ALL[2:], dict(number=6), ValueError, "number must be .* 0 to 5, not 6"),
    (ALL[2:], dict(number=-1), ValueError, "number must be .* 0 to 5, not -1"),
    (ALL[2:], dict(block_size=7), ValueError, "block_size must be 8 to 64, not 7"),
    (ALL[2:], dict(block_size=65), ValueError, "block_size must be 8 to 64, not 65"),
    (ALL[2:], dict(number=5, block_size=12), ValueError, "8, 16, 32 or 64 for rung 5, not 12"),
    (ALL[2:], dict(number=5, block_size=48), ValueError, "8, 16, 32 or 64 for rung 5, not 48"),
    (ALL[2:], dict(most_tiles=0), ValueError, "most_tiles must be positive, not 0"),
    (ALL[2:], dict(starts=integers(0, 1, 2).long()), TypeError, "cu_seqlens_q .* torch.int32"),
    (ALL[2:], dict(starts=integers(0, 2)), ValueError, "cu_seqlens_q must have the shape .3"),
    (ALL[2:], dict(starts=integers(1, 1, 2)), ValueError, "must begin with 0, not 1"),
    (ALL[2:], dict(starts=integers(0, 3, 2)), ValueError, r"after 3 it has 2 \(sequence 1\)"),
    (ALL[2:], dict(starts=integers(0, 9, 1, 9, 2)[::2]), ValueError, "cu_seqlens_q .* contig"),
    (ALL[2:], dict(starts=integers(0, 1, 2).to("meta")), ValueError, "cu_seqlens_q .* be on"),
    (ALL[2:], dict(starts=integers(0, 1, 6)), ValueError, "1 4 keys, fewer than its 5"),
    (ALL[2:], dict(kv_lens=LENS.long()), TypeError, "seq_lens_kv must be torch.int32"),
    (ALL[2:], dict(kv_lens=LENS - 5), ValueError, "holds -1 for sequence 1"),
    (ALL[2:], dict(kv_lens=LENS.repeat(2)[::2]), ValueError, "seq_lens_kv must be contiguous"),
    ((paged,), dict(dtype=torch.float64), TypeError, "q must be torch.float32"),
    ((paged,), dict(head_size=257), ValueError, "1 to 256, not 257"),
    ((paged,), dict(head_size=0), ValueError, "1 to 256, not 0"),
    ((paged,), dict(cache=(3, 0, 2)), ValueError, "a slot in each block and a KV"),
    ((paged,), dict(cache=(3, 4, 0)), ValueError, "a slot in each block and a KV"),
]
PLANS = [(plan, *row) for plans, *row in NOT_MADE for plan in plans]


@pytest.mark.parametrize(
    "plan, changes, error, words",
    PLANS,
    ids=[f"{plan.__name__}-{words[:30]}" for plan, _, _, words in PLANS],
)
def test_what_a_rung_is_not_made_for_is_refused(plan, changes, error, words):
    refused(error, words, plan, **changes)


def test_a_library_is_compiled_only_for_what_its_rung_is_made_for():
    refused(ValueError, "head_size", rung_library, 5, shape(head_size=65), "fast")
    refused(TypeError, "kv_dtype", rung_library, 5, shape(kv_dtype=FP8), "fast")
    refused(ValueError, "head_size", prefill_library, 4, shape(head_size=65), "fast")
    refused(TypeError, "kv_dtype", prefill_library, 4, shape(kv_dtype=BFLOAT), "fast")
