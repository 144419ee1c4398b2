"""Lesson 03's attention against PyTorch's: plain, tiled, in parts, and in a paged layer."""

import copy
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dense_attention import dense_attention
from disordered import disordered_manager
from examples import few
from paged_attention.attention.by_request import (
    forward_prefill,
    plain_attention,
    tiled_attention,
)
from paged_attention.attention.layer import AttentionLayer
from paged_attention.attention.softmax_state import NO_KEY, SoftmaxState
from poison import on_each_device, poisons

pytestmark = pytest.mark.usefixtures("one_thread")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
NAN = float("nan")
prop = few(10, drawn_anew=18)

BACKENDS = pytest.mark.parametrize(
    "attend", [plain_attention, tiled_attention], ids=lambda attend: attend.__name__
)


head_ratios = st.sampled_from([1, 3, 4, 7])
head_sizes = st.sampled_from([16, 40, 64, 128])
block_sizes = st.sampled_from([1, 2, 3, 7, 16, 32])
kv_heads = st.integers(1, 3)
seeds = st.integers(0, 2**31)


def lengths_for(block_size):
    """Empty, one token, whole blocks, one less and one more, and anything up to 14 blocks or
    some hundred tokens.
    """
    most = min(300, 14 * block_size)
    edges = [0, 1, block_size, 2 * block_size, 3 * block_size - 1, 3 * block_size + 1]
    return st.sampled_from(edges) | st.integers(0, most)


def random_request(
    length, block_size, num_kv_heads, ratio, head_size, seed, dtype=torch.float32, poison=NAN
):
    """q, k, v in blocks, with poison after the last token."""
    generator = torch.Generator().manual_seed(seed)
    num_blocks = -(-length // block_size)
    q, k, v = (
        torch.randn(num_blocks, block_size, heads, head_size, generator=generator).to(dtype)
        for heads in (num_kv_heads * ratio, num_kv_heads, num_kv_heads)
    )
    for x in (q, k, v):
        x.flatten(0, 1)[length:] = poison
    return q, k, v


@BACKENDS
@prop
@given(
    st.data(),
    block_sizes,
    kv_heads,
    head_ratios,
    head_sizes,
    seeds,
    st.sampled_from([torch.float32, torch.float64]),
    poisons,
)
def test_attention_is_pytorchs_and_0_behind_the_last_token(
    attend, data, block_size, num_kv_heads, ratio, head_size, seed, dtype, poison
):
    length = data.draw(lengths_for(block_size))
    q, k, v = random_request(
        length, block_size, num_kv_heads, ratio, head_size, seed, dtype, poison
    )
    o = attend(q, k, v, length)
    assert o.shape == q.shape and o.dtype == dtype
    rows = o.flatten(0, 1)
    assert not rows[length:].any()
    if length:
        expected = dense_attention(*(x.flatten(0, 1)[:length] for x in (q, k, v)))
        torch.testing.assert_close(rows[:length].double(), expected, **CLOSE)


@BACKENDS
def test_no_argument_is_changed_and_their_layout_in_memory_does_not_matter(attend):
    q, k, v = random_request(11, 4, 2, 3, 16, seed=5)
    expected = attend(q, k, v, 11)
    turned = [x.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1) for x in (q, k, v)]
    before = [x.clone() for x in turned]
    assert not turned[0].is_contiguous()
    torch.testing.assert_close(attend(*turned, 11), expected, **CLOSE)
    torch.testing.assert_close(turned, before, rtol=0, atol=0, equal_nan=True)


@BACKENDS
@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_all_is_computed_where_the_arguments_are(attend, device):
    """PyTorch refuses to compute with a tensor on `meta` and one that lies elsewhere."""
    arguments = random_request(11, 4, 2, 3, 16, seed=5)
    o = attend(*(x.to(device) for x in arguments), 11)
    assert o.device.type == device and o.shape == arguments[0].shape


IN_16_BITS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@BACKENDS
@on_each_device
@IN_16_BITS
def test_many_equal_keys_in_16_bits_give_the_mean_of_their_values(attend, device, dtype):
    """In blocks of 3: bfloat16 has no odd numbers between 256 and 512."""
    q, k = torch.zeros(2, 100, 3, 1, 8, dtype=dtype, device=device)
    v = torch.linspace(0, 1, 300).to(device, dtype).view(100, 3, 1, 1).expand(k.shape)
    o = attend(q, k, v, 300)
    assert o.dtype == dtype
    expected = dense_attention(*(x.flatten(0, 1) for x in (q, k, v)))
    torch.testing.assert_close(o.flatten(0, 1).double().cpu(), expected, rtol=1e-2, atol=1e-3)


# The online softmax


def scores_and_values(num_rows, num_keys, head_size, spread, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(num_rows, num_keys, generator=generator, dtype=dtype)
    scores[torch.rand(num_rows, num_keys, generator=generator) < 0.2] = NO_KEY
    scores[0] = NO_KEY  # one row sees no key at all
    return scores, torch.randn(num_rows, num_keys, head_size, generator=generator, dtype=dtype)


def softmax_of_all(scores, values):
    o = (torch.softmax(scores, -1).nan_to_num()[:, None] @ values)[:, 0]
    m = scores.amax(-1)
    return o, m, torch.exp(scores - m.nan_to_num(neginf=0.0)[:, None]).sum(-1)


def state_of(scores, values, sizes):
    state = SoftmaxState(len(scores), head_size=values.shape[-1], dtype=scores.dtype)
    for part, value in zip(scores.split(sizes, -1), values.split(sizes, -2), strict=True):
        state.update(part, value)
    return state


part_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=9)


@prop
@given(
    part_sizes,
    st.integers(2, 6),
    st.sampled_from([1, 16]),
    st.sampled_from([0.1, 3.0, 300.0]),
    seeds,
    st.sampled_from([torch.float32, torch.float64]),
)
def test_any_split_of_the_keys_gives_the_softmax_of_all(
    sizes, num_rows, head_size, spread, seed, dtype
):
    scores, values = scores_and_values(num_rows, sum(sizes), head_size, spread, seed, dtype)
    result = state_of(scores, values, sizes).finish()
    for ours, expected in zip(result, softmax_of_all(scores, values), strict=True):
        torch.testing.assert_close(ours, expected, **CLOSE)
    assert not result[0][0].any() and result[1][0] == NO_KEY and result[2][0] == 0


def merged(*states):
    """A new state, from copies."""
    result = SoftmaxState(
        *states[0].m.shape, head_size=states[0].acc.shape[-1], dtype=states[0].m.dtype
    )
    for state in states:
        result.merge(state)
    return result


@prop
@given(
    st.tuples(part_sizes, part_sizes, part_sizes), st.sampled_from([0.1, 3.0, 300.0]), seeds
)
def test_merge_is_associative_commutative_and_the_softmax_of_all(sizes, spread, seed):
    scores, values = scores_and_values(4, sum(map(sum, sizes)), 8, spread, seed)
    counts = [sum(part) for part in sizes]
    a, b, c = (
        state_of(part, value, part_sizes)
        for part, value, part_sizes in zip(
            scores.split(counts, -1), values.split(counts, -2), sizes, strict=True
        )
    )
    kept = copy.deepcopy((a, b, c))
    expected = softmax_of_all(scores, values)
    for state in (
        merged(a, b, c),
        merged(c, b, a),
        merged(merged(a, b), c),
        merged(a, merged(b, c)),
    ):
        for ours, theirs in zip(state.finish(), expected, strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)
    for state, before in zip((a, b, c), kept, strict=True):
        assert all(torch.equal(x, vars(before)[name]) for name, x in vars(state).items())


def test_the_state_goes_on_after_finish_and_after_merge():
    scores, values = scores_and_values(3, 9, 4, 2.0, seed=8)
    state = state_of(scores[:, :3], values[:, :3], [3])
    first, again = state.finish(), state.finish()
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    state.merge(state_of(scores[:, 3:5], values[:, 3:5], [1, 1]))
    state.update(scores[:, 5:], values[:, 5:])
    torch.testing.assert_close(state.finish(), softmax_of_all(scores, values), **CLOSE)


# Prefill


def prefill_inputs(
    lengths, block_size, num_kv_heads, ratio, head_size, seed, num_layers=1, index=0, dim=24
):
    """A layer, x, request_num_blocks, seq_ids, and a manager with shuffled free blocks.

    x has NaN after each last token.
    """
    shuffle = random.Random(seed)
    num_blocks = 2 * sum(-(-length // block_size) for length in lengths) + 1
    manager = disordered_manager(
        num_blocks,
        block_size,
        num_kv_heads,
        head_size,
        max_num_seqs=len(lengths) + 2,
        max_blocks_per_seq=num_blocks,
        num_layers=num_layers,
        generator=torch.Generator().manual_seed(seed),
    )
    seq_ids = shuffle.sample(range(100), len(lengths))
    for seq_id, length in zip(seq_ids, lengths, strict=True):
        manager.add_sequence(seq_id, length)
    request_num_blocks = [manager.blocks_for(length) for length in lengths]
    x = torch.randn(
        sum(request_num_blocks), block_size, dim, generator=torch.Generator().manual_seed(seed)
    )
    for rows, length in zip(x.split(request_num_blocks), lengths, strict=True):
        rows.flatten(0, 1)[length:] = NAN
    layer = AttentionLayer(
        dim, num_kv_heads * ratio, num_kv_heads, head_size, index=index, seed=seed % 1000
    )
    return layer, x, request_num_blocks, seq_ids, manager


@BACKENDS
@prop
@given(
    st.data(),
    block_sizes,
    kv_heads,
    head_ratios,
    st.sampled_from([16, 64, 128]),
    seeds,
    st.integers(0, 1),
)
def test_prefill_is_pytorchs_for_each_request_and_fills_the_pool(
    attend, data, block_size, num_kv_heads, ratio, head_size, seed, index
):
    lengths = data.draw(
        st.lists(st.integers(0, min(4 * block_size, 70)), min_size=1, max_size=4)
    )
    layer, x, request_num_blocks, seq_ids, manager = prefill_inputs(
        lengths, block_size, num_kv_heads, ratio, head_size, seed, num_layers=2, index=index
    )
    y = forward_prefill(layer, x, request_num_blocks, seq_ids, manager, attend)
    assert y.shape == x.shape
    pool = torch.full_like(manager.kv_cache, NAN)
    parts = zip(
        seq_ids, lengths, x.split(request_num_blocks), y.split(request_num_blocks), strict=True
    )
    for seq_id, length, rows, result in parts:
        rows, result = rows.flatten(0, 1)[:length], result.flatten(0, 1)
        q, k, v = layer.project(rows)
        assert not result[length:].any()
        if length:
            expected = layer.output(dense_attention(q, k, v).float())
            torch.testing.assert_close(result[:length], expected, **CLOSE)
        for token in range(length):
            block_id = manager.blocks_of(seq_id)[token // block_size]
            offset = token % block_size
            pool[index, :, block_id, offset] = torch.stack([k[token], v[token]])
    torch.testing.assert_close(manager.kv_cache, pool, **CLOSE, equal_nan=True)


def test_a_prefill_makes_no_tensor_without_saying_where():
    """The default device here is `meta`, which has no numbers."""
    layer, x, *arguments = prefill_inputs([5, 0, 9], 4, 2, 3, 16, seed=3)
    expected = forward_prefill(layer, x, *arguments)
    with torch.device("meta"):
        y = forward_prefill(layer, x, *arguments)
    torch.testing.assert_close(y, expected)


def test_a_state_that_has_seen_nothing_has_the_dtype_of_the_others():
    for dtype, kept in ((torch.float64, torch.float64), (torch.bfloat16, torch.float32)):
        o, m, l = SoftmaxState(2, head_size=3, dtype=dtype).finish()
        assert (o.dtype, m.dtype, l.dtype) == (kept,) * 3 and not o.any() and not l.any()


@BACKENDS
def test_float64_stays_as_exact_as_it_is(attend):
    """In float32, 1 + 2^-40 is 1."""
    value = 1 + 2**-40
    q = torch.ones(2, 3, 1, 4, dtype=torch.float64)
    torch.testing.assert_close(
        attend(q, q, torch.full_like(q, value), 6),
        torch.full_like(q, value),
        rtol=1e-15,
        atol=0,
    )
