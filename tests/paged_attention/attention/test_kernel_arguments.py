"""What the kernels' arguments must be: batches, launches, tables and decodes, at the edges."""

from types import SimpleNamespace

import pytest
import torch

from int32 import integers
from paged_attention import validate
from refused import refused
from unsaid import unsaid

HALF = torch.float16
CACHE = torch.zeros(3, 4, 2, 8)


Q = torch.zeros(3, 4, 8)
BATCH = dict(
    seq_lens_kv=integers(5, 4),
    cu_seqlens_q=integers(0, 1, 3),
    block_table=integers(0, 2, 1, 9).reshape(2, 2),
)
PAGED = dict(q=Q, k_cache=CACHE, v_cache=CACHE)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(v_cache=CACHE.half()), TypeError, "v_cache must be"),
        (dict(q=Q[0]), ValueError, "q must have the shape"),
        (dict(q=Q.half()), TypeError, "q must be torch.float32"),
        (dict(q=Q[:, :, :7]), ValueError, "q must have the shape"),
        (dict(q=Q[:, :0]), ValueError, "2 KV heads, not 0 heads"),
        (dict(q=Q[:, :3]), ValueError, "2 KV heads, not 3 heads"),
        (
            dict(seq_lens_kv=integers(5, 4).long()),
            TypeError,
            "seq_lens_kv must be torch.int32",
        ),
        (dict(seq_lens_kv=integers()), ValueError, "seq_lens_kv is empty"),
        (
            dict(cu_seqlens_q=integers(0, 3)),
            ValueError,
            r"cu_seqlens_q must have the shape \(3,",
        ),
        (
            dict(cu_seqlens_q=integers(0, 1, 3).long()),
            TypeError,
            "cu_seqlens_q must be torch.int32",
        ),
        (
            dict(block_table=integers(0, 2).reshape(1, 2)),
            ValueError,
            "block_table must have the",
        ),
        (dict(block_table=torch.zeros(2, 2)), TypeError, "block_table must be torch.int32"),
        (
            dict(cu_seqlens_q=integers(1, 2, 3)),
            ValueError,
            "0 to the 3 tokens of q, not from 1 to 3",
        ),
        (dict(cu_seqlens_q=integers(0, 1, 4)), ValueError, "not from 0 to 4"),
        (dict(cu_seqlens_q=integers(0, 1, 2)), ValueError, "not from 0 to 2"),
        (
            dict(cu_seqlens_q=integers(0, 0, 3)),
            ValueError,
            "sequence 0 0 queries; it must be 1",
        ),
        (
            dict(cu_seqlens_q=integers(0, 4, 3), seq_lens_kv=integers(8, 4)),
            ValueError,
            "sequence 1 -1 queries; it must be 1",
        ),
        (dict(seq_lens_kv=integers(5, 1)), ValueError, "sequence 1 1 keys, fewer than its 2"),
        (
            dict(seq_lens_kv=integers(9, 4)),
            ValueError,
            "sequence 0 9 keys, which need 3 blocks, .* 2 entries",
        ),
        (
            dict(seq_lens_kv=integers(5, 5)),
            ValueError,
            r"row 1, holds 9 \(entry 1\); .* 0 to 2",
        ),
        (
            dict(block_table=integers(0, 3, 1, 9).reshape(2, 2)),
            ValueError,
            r"row 0, holds 3 \(entry 1\)",
        ),
        (
            dict(block_table=integers(-1, 2, 1, 9).reshape(2, 2)),
            ValueError,
            r"row 0, holds -1 \(entry 0\)",
        ),
    ],
)
def test_a_batch_fits_its_queries_and_its_pool(changes, error, words):
    def check(changes):
        tensors = {name: changes.get(name, tensor) for name, tensor in PAGED.items()}
        metadata = {name: changes.get(name, tensor) for name, tensor in BATCH.items()}
        validate.check_paged_attention(**tensors, metadata=SimpleNamespace(**metadata))

    check({})
    check(dict(seq_lens_kv=integers(8, 2)))
    refused(error, words, check, changes)


def test_strides_are_named_where_a_tensor_is_not_contiguous():
    validate.check_contiguous("t", CACHE)
    refused(
        ValueError,
        r"t must be contiguous.*\(1, 8\) for the shape \(8, 2\); t.contiguous",
        validate.check_contiguous,
        "t",
        CACHE[0, 0].T,
    )


def launched(longest=8, **changes):
    right = dict(
        q=Q, k_cache=CACHE, v_cache=CACHE, block_table=BATCH["block_table"], out=Q.clone()
    )
    validate.check_launch(4, longest, **right | changes)


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            dict(longest=9),
            "block_table has 2 entries in a row, and the longest .* 9 tokens needs 3",
        ),
        (
            dict(k_cache=CACHE[:1].expand(2**28, -1, -1, -1)),
            "k_cache has 2147483648 rows .* less than 2147483648",
        ),
        (dict(k_cache=CACHE[:1].expand(2**28 - 1, -1, -1, -1)), "k_cache must be contiguous"),
        (dict(v_cache=CACHE.to("meta")), "v_cache must be on .* device"),
        (
            dict(block_table=BATCH["block_table"].to("meta")),
            "block_table must be on .* device",
        ),
        (dict(out=Q.to("meta")), "out must be on .* device"),
        (dict(k_cache=CACHE.to("meta")), "k_cache must be on .* device"),
        (dict(q=Q.to("meta")), "device"),
        (dict(others=Q.to("meta")), "device"),
        (dict(v_cache=CACHE.transpose(0, 1)), "v_cache must be contiguous"),
        (dict(out=Q.transpose(1, 2)), "out must be contiguous"),
        (dict(block_table=BATCH["block_table"].T), "block_table must be contiguous"),
        (dict(q=Q.transpose(1, 2)), "q must hold the heads of each row one after the other"),
    ],
)
def test_a_launch_has_tensors_that_the_kernels_can_read(changes, words):
    launched()
    refused(ValueError, words, launched, **changes)


def test_a_row_of_the_table_has_an_entry_for_each_block():
    wide = torch.zeros(2, 3, dtype=torch.int32)
    launched(longest=12, block_table=wide)
    refused(ValueError, "has 3 entries in a row", launched, longest=13, block_table=wide)


def test_rows_of_q_may_be_apart_and_there_may_be_none():
    launched(q=torch.zeros(3, 5, 8)[:, :4])
    launched(q=Q[:1], out=Q[:1].clone())
    launched(q=torch.zeros(0, 8, 4).transpose(1, 2), out=Q[:0])


@pytest.mark.parametrize(
    "tensor, fits",
    [
        (torch.zeros(2, 8).half(), True),
        (torch.zeros(2, 16).half()[:, 8:], True),
        (torch.zeros(2, 16).half()[:, 4:], False),
        (torch.zeros(2, 12).half(), False),
        (torch.zeros(2, 12), True),
        (torch.zeros(2, 10), False),
        (torch.zeros(2, 9).to(torch.uint8), False),
    ],
)
def test_each_row_begins_at_a_multiple_of_16_bytes(tensor, fits):
    if fits:
        validate.check_chunks(first=torch.zeros(2, 4), t=tensor)
    else:
        refused(
            ValueError,
            "t must begin, with each of its rows",
            validate.check_chunks,
            first=torch.zeros(2, 4),
            t=tensor,
        )


def test_tensors_are_alike_if_they_differ_only_in_their_addresses():
    def alike(first, second):
        return validate.signature_of(first) == validate.signature_of(second)

    assert alike(CACHE, CACHE.clone()) and alike(None, None) and alike(3, 4)
    for other in (CACHE[:2], CACHE.to("meta"), CACHE.half(), None):
        assert not alike(CACHE, other)
    assert not alike(torch.zeros(2, 2), torch.zeros(2, 2).T)
    assert not alike(None, 3)


def test_the_first_tensor_that_is_elsewhere_is_named():
    validate.check_devices(first=Q)
    validate.check_devices(first=Q, second=CACHE)
    elsewhere = Q.to("meta")
    refused(
        ValueError,
        "^third must be on first's device, cpu, not on meta$",
        validate.check_devices,
        first=Q,
        second=Q,
        third=elsewhere,
        fourth=elsewhere,
    )


TABLE = integers(0, 2, -1, 9, 1, 2).reshape(2, 3)


@pytest.mark.parametrize(
    "lens, num_blocks, words",
    [
        ((8, 0), 3, None),
        ((5, 0), 3, None),
        ((4, 0), 1, None),
        ((9, 0), 3, r"row 0, holds -1 \(entry 2\); .* 0 to 2"),
        ((8, 0), 2, r"row 0, holds 2 \(entry 1\); .* 0 to 1"),
        ((8, 1), 9, r"row 1, holds 9 \(entry 0\)"),
        ((8, 12), 10, None),
        (
            (8, 13),
            10,
            "sequence 1 13 tokens, which need 4 blocks, and block_table has 3 entries",
        ),
        ((-1, 0), 3, "context_lens holds -1 for sequence 0"),
        ((0, -5), 3, "context_lens holds -5 for sequence 1"),
    ],
)
def test_a_table_names_a_block_of_the_pool_wherever_a_context_needs_one(
    lens, num_blocks, words
):
    given = TABLE, integers(*lens), num_blocks, 4
    with unsaid():
        assert validate.table_fits(*given) == (words is None)
    if words:
        refused(ValueError, words, validate.check_block_table, *given)
    else:
        validate.check_block_table(*given)


def test_a_table_and_its_lengths_are_int32():
    check = validate.check_block_table
    refused(
        TypeError, "context_lens must be torch.int32", check, TABLE, torch.tensor([1, 1]), 3, 4
    )
    refused(
        ValueError, "context_lens must have the shape .num_seqs,", check, TABLE, TABLE, 3, 4
    )
    refused(
        TypeError, "block_table must be torch.int32", check, TABLE.long(), integers(1, 1), 3, 4
    )
    refused(
        ValueError,
        r"block_table must have the shape \(1, max",
        check,
        TABLE,
        integers(1),
        3,
        4,
    )


def test_the_largest_numbers_do_not_overflow():
    most = 2**31 - 1
    table = torch.full((1, 1), most, dtype=torch.int32)
    assert validate.table_fits(table, integers(4), 2**31, 4)
    assert not validate.table_fits(table, integers(4), most, 4)
    assert not validate.table_fits(table, integers(most), 2**31, 4)


DECODE = dict(
    q=Q[:2],
    k_cache=CACHE,
    v_cache=CACHE,
    block_table=integers(0, 1).reshape(2, 1),
    context_lens=integers(4, 3),
)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(q=Q[0]), ValueError, "q must have the shape"),
        (
            dict(q=Q[:2].double(), k_cache=CACHE.double()),
            TypeError,
            "q must be torch.float32, torch.float16 or",
        ),
        (dict(k_cache=CACHE[..., :7]), ValueError, "k_cache must have the shape"),
        (dict(k_cache=CACHE.half()), TypeError, "k_cache must be torch.float32"),
        (dict(kv_dtype=HALF), TypeError, "k_cache must be torch.float16"),
        (dict(v_cache=CACHE[:2]), ValueError, "v_cache must have the shape"),
        (dict(v_cache=CACHE.half()), TypeError, "v_cache must be torch.float32"),
        (dict(q=Q[:0]), ValueError, "q is empty"),
        (
            dict(q=torch.zeros(2, 4, 0), k_cache=CACHE[..., :0], v_cache=CACHE[..., :0]),
            ValueError,
            "1 to 256, not 0",
        ),
        (
            dict(
                q=torch.zeros(2, 4, 257),
                k_cache=torch.zeros(3, 4, 2, 257),
                v_cache=torch.zeros(3, 4, 2, 257),
            ),
            ValueError,
            "1 to 256, not 257",
        ),
        (
            dict(k_cache=CACHE[:, :0], v_cache=CACHE[:, :0]),
            ValueError,
            "a slot in each block and a KV head",
        ),
        (
            dict(k_cache=CACHE[:, :, :0], v_cache=CACHE[:, :, :0]),
            ValueError,
            "a slot in each block and a KV head",
        ),
        (dict(q=Q[:2, :0]), ValueError, "2 KV heads, not 0 heads"),
        (dict(q=Q[:2, :3]), ValueError, "2 KV heads, not 3 heads"),
        (
            dict(context_lens=integers(4)),
            ValueError,
            r"context_lens must have the shape \(2,\)",
        ),
        (
            dict(context_lens=torch.tensor([4, 3])),
            TypeError,
            "context_lens must be torch.int32",
        ),
        (
            dict(block_table=integers(0).reshape(1, 1)),
            ValueError,
            "block_table must have the shape",
        ),
        (dict(block_table=torch.zeros(2, 1)), TypeError, "block_table must be torch.int32"),
        *(
            ({name: DECODE[name].to("meta")}, ValueError, f"{name} must be on q's device")
            for name in ("k_cache", "v_cache", "block_table", "context_lens")
        ),
        (
            dict(q=torch.zeros(2, 8, 4).transpose(1, 2)),
            ValueError,
            "q must hold each sequence's heads",
        ),
        (
            dict(k_cache=torch.zeros(4, 3, 2, 8).transpose(0, 1)),
            ValueError,
            "k_cache must be contiguous",
        ),
        (
            dict(v_cache=torch.zeros(4, 3, 2, 8).transpose(0, 1)),
            ValueError,
            "v_cache must be contiguous",
        ),
        (
            dict(block_table=integers(0, 1, 2, 3).reshape(2, 2).T),
            ValueError,
            "block_table must be contiguous",
        ),
        (
            dict(context_lens=integers(4, 3, 4, 3)[::2]),
            ValueError,
            "context_lens must be contiguous",
        ),
    ],
)
def test_a_decode_has_tensors_that_the_kernels_can_read(changes, error, words):
    validate.check_decode_tensors(**DECODE)
    refused(error, words, validate.check_decode_tensors, **DECODE | changes)


def test_what_the_table_and_the_lengths_hold_is_checked_last():
    validate.check_paged_decode(**DECODE)
    validate.check_decode_tensors(**DECODE | dict(block_table=integers(0, 3).reshape(2, 1)))
    check = validate.check_paged_decode
    refused(
        ValueError,
        "row 1, holds 3",
        check,
        **DECODE | dict(block_table=integers(0, 3).reshape(2, 1)),
    )
    refused(
        ValueError, "sequence 1 5 tokens", check, **DECODE | dict(context_lens=integers(1, 5))
    )
    refused(TypeError, "k_cache must be torch.float16", check, **DECODE, kv_dtype=HALF)


def test_a_decode_may_have_the_smallest_and_the_largest_heads():
    for size in (1, 256):
        cache = torch.zeros(1, 1, 1, size)
        given = torch.zeros(1, 1, size), cache, cache, integers(0).reshape(1, 1), integers(1)
        validate.check_paged_decode(*given)
    half = CACHE.half()
    validate.check_paged_decode(**DECODE | dict(k_cache=half, v_cache=half), kv_dtype=HALF)
