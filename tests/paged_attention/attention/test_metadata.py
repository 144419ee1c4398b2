"""Any batch, paged, against dense attention; and what does not fit is refused by name."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dense_attention import dense_attention
from disordered import disordered_manager, write_tokens
from examples import few
from paged_attention.attention.metadata import (
    attn_paged_torch,
    build_metadata,
    visible_keys,
)
from paged_attention.attention.tiny_transformer import (
    TinyTransformer,
    generate_dense,
    generate_paged,
    merge_in_a_hurry,
)
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.pool.slots import write_kv
from poison import poisons

pytestmark = pytest.mark.usefixtures("one_thread")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
BATCHES = st.lists(
    st.tuples(st.integers(0, 200), st.one_of(st.just(1), st.integers(1, 120))),
    min_size=1,
    max_size=4,
)
some = few(25, drawn_anew=60)


def make_manager(block_size, num_kv_heads, head_size, lengths, seed, poison=math.nan):
    """A pool for sequences of these lengths, poisoned everywhere, that hands out its blocks in
    any order.
    """
    longest = max(-(-length // block_size) for length in lengths) + 1
    num_blocks = sum(-(-length // block_size) for length in lengths) + 2
    return disordered_manager(
        num_blocks,
        block_size,
        num_kv_heads,
        head_size,
        len(lengths) + 1,
        longest,
        generator=torch.Generator().manual_seed(seed),
        poison=poison,
    )


@some
@given(
    batch=BATCHES,
    block_size=st.sampled_from([1, 2, 3, 7, 16, 32]),
    ratio=st.sampled_from([1, 3, 4, 7]),
    num_kv_heads=st.integers(1, 2),
    head_size=st.sampled_from([16, 24, 64, 128]),
    seed=st.integers(0, 10**6),
    poison=poisons,
)
def test_any_batch_is_dense_attention(
    batch, block_size, ratio, num_kv_heads, head_size, seed, poison
):
    lengths = [past + new for past, new in batch]
    manager = make_manager(block_size, num_kv_heads, head_size, lengths, seed, poison=poison)
    generator = torch.Generator().manual_seed(seed)
    tokens = [
        (
            torch.randn(length, ratio * num_kv_heads, head_size, generator=generator),
            *torch.randn(2, length, num_kv_heads, head_size, generator=generator),
        )
        for length in lengths
    ]
    for seq_id, (past, _) in enumerate(batch):
        manager.add_sequence(seq_id, past)
        write_tokens(manager, seq_id, *(x[:past] for x in tokens[seq_id][1:]))
    order = torch.randperm(len(batch), generator=generator).tolist()
    scheduled = [(seq_id, batch[seq_id][1]) for seq_id in order]
    manager.append_tokens(scheduled)
    metadata = build_metadata(manager, scheduled)
    q, k, v = (
        torch.cat([tokens[seq_id][part][batch[seq_id][0] :] for seq_id in order])
        for part in range(3)
    )
    write_kv(*manager.kv_cache[0], metadata.slot_mapping, k, v)
    result = attn_paged_torch(q, *manager.kv_cache[0], metadata)
    expected = [
        dense_attention(tokens[seq_id][0][batch[seq_id][0] :], *tokens[seq_id][1:])
        for seq_id in order
    ]
    torch.testing.assert_close(result.double(), torch.cat(expected), **CLOSE)
    assert metadata.block_table.shape == (len(batch), manager.max_blocks_per_seq)
    for row, (seq_id, _) in zip(metadata.block_table.tolist(), scheduled, strict=True):
        blocks = manager.blocks_of(seq_id)
        assert row == blocks + [-1] * (len(row) - len(blocks))
    lengths_and_table = metadata.cu_seqlens_q, metadata.seq_lens_kv, metadata.block_table
    assert {tensor.dtype for tensor in lengths_and_table} == {torch.int32}
    assert metadata.slot_mapping.dtype == torch.int64


@some
@given(kv_len=st.integers(1, 40), data=st.data())
def test_the_mask_is_the_rule(kv_len, data):
    q_len = data.draw(st.integers(1, kv_len))
    seen = visible_keys(q_len, kv_len)
    assert seen.tolist() == [
        [key <= kv_len - q_len + query for key in range(kv_len)] for query in range(q_len)
    ]


def test_the_debugging_exercise_holds_what_the_lesson_says():
    model, prompt = TinyTransformer(seed=364), [3, 14, 15, 92, 65, 35]

    def generate(merge):
        return generate_paged(
            model, prompt, 12, PagedAttentionManager(8, 4, 2, 8, 1, 8, num_layers=4), merge
        )

    expected = generate_dense(model, prompt, 12)
    assert generate(lambda o: o.flatten(1)) == expected and len(set(expected)) > 8
    assert generate(merge_in_a_hurry)[0] != expected[0]


def test_the_metadata_are_on_the_managers_device():
    manager = PagedAttentionManager(8, 2, 1, 1, 3, 4, device="meta")
    manager.add_sequence(0, 3)
    metadata = build_metadata(manager, [(0, 2)])
    assert all(tensor.is_meta for tensor in vars(metadata).values())
