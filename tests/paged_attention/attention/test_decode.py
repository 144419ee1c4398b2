"""Decode by blocks against PyTorch's attention over the whole sequence, for any sizes and with
hostile inputs.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dense_attention import dense_attention
from disordered import disordered_manager, write_tokens
from examples import few
from paged_attention.attention.decode import (
    block_attention,
    combine_result,
    combine_segments,
    dispatch,
    forward_decoding,
    forward_decoding_loop,
)
from paged_attention.attention.layer import AttentionLayer
from paged_attention.attention.three_requests import three_requests
from poison import on_each_device, poisons

pytestmark = pytest.mark.usefixtures("one_thread")
DIM = 24
FORMS = [forward_decoding_loop, forward_decoding]
quick = few(20, drawn_anew=60)
ratios = st.sampled_from([1, 3, 4, 7])
head_sizes = st.sampled_from([16, 32, 80, 128])
block_sizes = st.sampled_from([1, 2, 3, 8, 16, 32])
lengths = st.one_of(
    st.integers(0, 40), st.integers(41, 400), st.sampled_from([0, 1, 15, 16, 17, 32])
)
close = {"atol": 1e-5, "rtol": 1e-5}


def add_past(manager, layer, seq_id, tokens):
    """A sequence whose keys and values are in the pool, and room for one more token."""
    manager.add_sequence(seq_id, len(tokens))
    _, k, v = layer.project(tokens)
    write_tokens(manager, seq_id, k, v, layer.index)
    manager.append_token(seq_id)


def scene(
    past_lens,
    block_size=4,
    num_kv_heads=2,
    ratio=3,
    head_size=16,
    seed=0,
    num_layers=1,
    spare_blocks=3,
    poison=math.nan,
):
    """A layer, a manager with a bystander sequence, the batch's ids in no order, their past
    tokens and new ones.
    """
    source = torch.Generator().manual_seed(seed)
    layer = AttentionLayer(
        DIM, num_kv_heads * ratio, num_kv_heads, head_size, index=num_layers - 1, seed=seed
    )
    num_blocks = (
        sum(length // block_size + 1 for length in past_lens) + 8 // block_size + spare_blocks
    )
    manager = disordered_manager(
        num_blocks,
        block_size,
        num_kv_heads,
        head_size,
        len(past_lens) + 2,
        num_blocks,
        generator=source,
        poison=poison,
        num_layers=num_layers,
    )
    past = {
        100 - i: torch.randn(length, DIM, generator=source)
        for i, length in enumerate(past_lens)
    }
    add_past(manager, layer, 7, torch.randn(7, DIM, generator=source))
    for seq_id in sorted(past):
        add_past(manager, layer, seq_id, past[seq_id])
    return layer, manager, past, torch.randn(len(past_lens), DIM, generator=source)


def expected_output(layer, past, new):
    rows = []
    for tokens, token in zip(past.values(), new, strict=True):
        q, k, v = layer.project(torch.cat([tokens, token[None]]))
        rows.append(dense_attention(q[-1:], k, v).float())
    return layer.output(torch.cat(rows))


@quick
@given(
    st.lists(lengths, min_size=1, max_size=4),
    block_sizes,
    st.integers(1, 2),
    ratios,
    head_sizes,
    st.integers(0, 999),
    poisons,
)
def test_both_forms_equal_attention_over_the_whole_sequence_and_write_new_tokens_alone(
    past_lens, block_size, num_kv_heads, ratio, head_size, seed, poison
):
    layer, manager, past, new = scene(
        past_lens, block_size, num_kv_heads, ratio, head_size, seed, 2, poison=poison
    )
    before, table = manager.kv_cache.clone(), manager.block_table.clone()
    written, (_, *rows) = before.clone(), layer.project(new)
    for seq_id, *key_and_value in zip(past, *rows, strict=True):
        block_id = manager.blocks_of(seq_id)[-1]
        offset = (manager.get(seq_id).length - 1) % block_size
        written[1, :, block_id, offset] = torch.stack(key_and_value)
    outputs = []
    for form in FORMS:
        manager.kv_cache.copy_(before)
        outputs.append(form(layer, new, list(past), manager))
        # bit for bit, NaN included
        assert torch.equal(manager.kv_cache.view(torch.int32), written.view(torch.int32))
        assert torch.equal(manager.block_table, table)
    torch.testing.assert_close(outputs[0], expected_output(layer, past, new), **close)
    torch.testing.assert_close(outputs[1], outputs[0], **close)


def blocks_of(k, v, block_size, source, poison):
    """Keys and values cut into blocks, the tail poisoned; the blocks' order does not matter,
    so it is random.
    """
    num_blocks = -(-len(k) // block_size)
    keys, values = torch.full((2, num_blocks * block_size, *k.shape[1:]), poison)
    keys[: len(k)], values[: len(v)] = k, v
    num_valid = (len(k) - torch.arange(num_blocks) * block_size).clamp(max=block_size)
    order = torch.randperm(num_blocks, generator=source)
    return (
        *(x.view(num_blocks, block_size, *k.shape[1:])[order] for x in (keys, values)),
        num_valid[order],
    )


@quick
@given(
    st.lists(lengths, min_size=1, max_size=4),
    block_sizes,
    ratios,
    head_sizes,
    st.sampled_from([0.0, 1e4, -1e4]),
    st.integers(0, 999),
    poisons,
)
def test_blocks_combined_equal_attention_over_all_keys(
    key_lens, block_size, ratio, head_size, level, seed, poison
):
    """`level` is added to every score by one number of the keys, so the answer is that of the
    other numbers alone.
    """
    source = torch.Generator().manual_seed(seed)
    q = torch.randn(len(key_lens), 2 * ratio, head_size, generator=source)
    k, v = torch.randn(2, sum(key_lens), 2, head_size, generator=source)
    if level:  # whole scores, exact in float32
        q.zero_()[..., 0] = 2.0 ** math.ceil(math.log2(head_size) / 2)
        k[..., 0] = level + torch.randint(4, k.shape[:-1], generator=source)
    requests = list(zip(k.split(key_lens), v.split(key_lens), strict=True))
    cut = [blocks_of(*request, block_size, source, poison) for request in requests]
    keys, values, num_valid = (torch.cat(column) for column in zip(*cut, strict=True))
    counts = torch.tensor([len(part[2]) for part in cut])
    parts = block_attention(dispatch(q, counts), keys, values, num_valid)
    o, m, l = combine_segments(*parts, counts)
    # the scale itself is rounded
    tolerance = {"atol": 1e-2, "rtol": 1e-2} if level and math.sqrt(head_size) % 1 else close
    start = 0
    for i, count in enumerate(counts.tolist()):
        if count == 0:
            assert not o[i].any() and (m[i] == -math.inf).all() and not l[i].any()
            continue
        (expected,) = dense_attention(q[i : i + 1], *requests[i]).float()
        torch.testing.assert_close(o[i], expected, **tolerance)
        by_itself = combine_result(*(x[start : start + count] for x in parts))
        for segmented, alone in zip((o[i], m[i], l[i]), by_itself, strict=True):
            torch.testing.assert_close(segmented, alone, **close)
        start += count


@quick
@given(
    st.integers(1, 6),
    st.integers(0, 6),
    st.sampled_from([0.0, 1e4, -1e4]),
    st.integers(0, 999),
)
def test_parts_without_a_key_disturb_nothing(num_parts, num_empty, level, seed):
    source = torch.Generator().manual_seed(seed)
    o = torch.randn(num_parts, 3, 8, generator=source)
    m = level + torch.randn(num_parts, 3, generator=source)
    l = 1 + torch.rand(num_parts, 3, generator=source)
    order = torch.randperm(num_parts + num_empty, generator=source)
    padded = [
        torch.cat([part, part.new_full((num_empty, *part.shape[1:]), filler)])[order]
        for part, filler in ((o, 0.0), (m, -math.inf), (l, 0.0))
    ]
    for with_empty, without in zip(
        combine_result(*padded), combine_result(o, m, l), strict=True
    ):
        torch.testing.assert_close(with_empty, without, **close)


def test_no_key_anywhere():
    q, k = torch.randn(2, 6, 16), torch.full((2, 4, 2, 16), math.nan)
    o, m, l = block_attention(q, k, k, torch.tensor([0, 0]))
    for result in (
        (o, m, l),
        combine_result(o, m, l),
        combine_segments(o, m, l, torch.tensor([0, 2, 0])),
    ):
        assert not result[0].any() and (result[1] == -math.inf).all() and not result[2].any()


def test_maxima_twenty_thousand_apart():
    o, l = torch.tensor([[[1.0]], [[2.0]]]), torch.ones(2, 1)
    for m, expected in (([1e4, -1e4], 1.0), ([-1e4, 1e4], 2.0), ([-1e4, -1e4], 1.5)):
        result, top, total = combine_result(o, torch.tensor(m)[:, None], l)
        assert (
            result.item() == expected and top.item() == max(m) and math.isfinite(total.item())
        )


@on_each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_parts_of_16_bit_numbers_have_32(device, dtype):
    """Each step from the same inputs: 400 blocks of 16 keys, and their parts rounded to 16
    bits.
    """
    source = torch.Generator().manual_seed(2)
    q, k, v = (
        torch.randn(400, *shape, generator=source).to(device, dtype)
        for shape in ((6, 16), (16, 2, 16), (16, 2, 16))
    )
    num_valid = torch.full((400,), 16, device=device)
    number = torch.tensor([400], device=device)
    parts = block_attention(q, k, v, num_valid)
    rounded = [part.to(dtype) for part in parts]
    for ours, exact in (
        (parts, block_attention(q.double(), k.double(), v.double(), num_valid)),
        (combine_result(*rounded), combine_result(*(part.double() for part in rounded))),
        (
            combine_segments(*rounded, number),
            combine_segments(*(part.double() for part in rounded), number),
        ),
    ):
        for part, expected in zip(ours, exact, strict=True):
            assert part.dtype == torch.float32 and expected.dtype == torch.float64
            torch.testing.assert_close(part.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_step_in_16_bits_is_rounded_at_the_end(dtype):
    layer, manager, past, new = scene([5, 0, 300])
    exact = forward_decoding(layer, new, list(past), manager)
    layer.to(dtype)
    manager.kv_cache = manager.kv_cache.to(dtype)
    for form in FORMS:
        y = form(layer, new.to(dtype), list(past), manager)
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), exact, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("form", FORMS)
def test_a_step_makes_no_tensor_without_saying_where(form):
    """The default device here is `meta`, which has no numbers."""
    layer, manager, past, new = scene([5, 0, 12])
    expected = expected_output(layer, past, new)
    with torch.device("meta"):
        y = form(layer, new, list(past), manager)
    torch.testing.assert_close(y, expected, **close)


def test_three_requests_have_their_past_in_the_blocks_that_were_named_and_nan_elsewhere():
    layer, order = AttentionLayer(DIM, 6, 2, 16), [5, 0, 7, 2, 6, 1, 4, 3]
    texts, manager = three_requests(layer, order)
    assert [manager.blocks_of(seq_id) for seq_id in texts] == [[5, 0, 7], [2], [6, 1]]
    assert manager.block_manager.allocate() == 4
    for seq_id, length in {1: 10, 2: 3, 3: 7}.items():
        _, *expected = layer.project(texts[seq_id])
        for cache, rows in zip(manager.kv_cache[layer.index], expected, strict=True):
            found = cache[manager.blocks_of(seq_id)].flatten(0, 1)
            torch.testing.assert_close(found[:length], rows, **close)
            assert found[length:].isnan().all()
