"""Any batch, paged, against dense attention; room for a batch or for none; and every bad input
refused by name.
"""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import (
    PagedAttentionManager,
    SequenceTooLongError,
    UnknownSequenceError,
)
from paged_attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    build_metadata,
    cumulative_lengths,
    visible_keys,
)
from paged_attention.slots import slot_mapping, write_kv
from paged_attention.tiny_transformer import (
    TinyTransformer,
    generate_dense,
    generate_paged,
    merge_in_a_hurry,
)
from poison import poisons

pytestmark = pytest.mark.usefixtures("one_thread")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
BATCHES = st.lists(
    st.tuples(st.integers(0, 200), st.one_of(st.just(1), st.integers(1, 120))),
    min_size=1,
    max_size=4,
)
few = settings(max_examples=60, deadline=None, derandomize=True)


def make_manager(
    block_size,
    num_kv_heads,
    head_size,
    lengths,
    seed=0,
    device="cpu",
    dtype=torch.float32,
    poison=float("nan"),
):
    """A pool for sequences of these lengths, poisoned everywhere, that hands out its blocks in
    any order.
    """
    longest = max(-(-length // block_size) for length in lengths) + 1
    num_blocks = sum(-(-length // block_size) for length in lengths) + 2
    manager = PagedAttentionManager(
        num_blocks,
        block_size,
        num_kv_heads,
        head_size,
        len(lengths) + 1,
        longest,
        device=device,
        dtype=dtype,
    )
    manager.kv_cache.fill_(poison)
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    for _ in order:
        manager.block_manager.allocate()
    for block_id in order:
        manager.block_manager.free(block_id)
    return manager


def write_past(manager, seq_id, k, v):
    """Keys and values of the tokens that earlier steps computed."""
    slots = slot_mapping(
        manager.get_block_table_for_seq(seq_id), torch.arange(len(k)), manager.block_size
    )
    write_kv(*manager.kv_cache[0], slots, k, v)


def dense_attention(q, k, v):
    """The queries are the last tokens of k and v: PyTorch's attention with the mask written
    out.
    """
    mask = torch.arange(len(k)) <= torch.arange(len(k) - len(q), len(k))[:, None]
    heads_first = (x.transpose(0, 1)[None] for x in (q, k, v))
    return scaled_dot_product_attention(*heads_first, attn_mask=mask, enable_gqa=True)[
        0
    ].transpose(0, 1)


@few
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
        write_past(manager, seq_id, *(x[:past] for x in tokens[seq_id][1:]))
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
    torch.testing.assert_close(result, torch.cat(expected), **CLOSE)
    assert metadata.block_table.shape == (len(batch), manager.max_blocks_per_seq)
    for row, (seq_id, _) in zip(metadata.block_table.tolist(), scheduled, strict=True):
        blocks = manager.blocks_of(seq_id)
        assert row == blocks + [-1] * (len(row) - len(blocks))
    assert (
        metadata.cu_seqlens_q.dtype,
        metadata.seq_lens_kv.dtype,
        metadata.block_table.dtype,
        metadata.slot_mapping.dtype,
    ) == (torch.int32,) * 3 + (torch.int64,)


@few
@given(
    chunks=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 4, 5, 16]),
    seed=st.integers(0, 10**6),
)
def test_a_prompt_may_be_cut_anywhere(chunks, block_size, seed):
    length, generator = sum(chunks), torch.Generator().manual_seed(seed)
    q = torch.randn(length, 6, 16, generator=generator)
    k, v = torch.randn(2, length, 2, 16, generator=generator)
    manager = make_manager(block_size, 2, 16, [length], seed)
    manager.add_sequence(0, 0)
    outputs = []
    for rows in torch.arange(length).split(chunks):
        manager.append_tokens([(0, len(rows))])
        metadata = build_metadata(manager, [(0, len(rows))])
        write_kv(*manager.kv_cache[0], metadata.slot_mapping, k[rows], v[rows])
        outputs.append(attn_paged_torch(q[rows], *manager.kv_cache[0], metadata))
    torch.testing.assert_close(torch.cat(outputs), dense_attention(q, k, v), **CLOSE)


@few
@given(kv_len=st.integers(1, 40), data=st.data())
def test_the_mask_is_the_rule(kv_len, data):
    q_len = data.draw(st.integers(1, kv_len))
    seen = visible_keys(q_len, kv_len)
    assert seen.tolist() == [
        [key <= kv_len - q_len + query for key in range(kv_len)] for query in range(q_len)
    ]


def books(manager):
    """All that a failed call must leave alone."""
    counts = [
        manager.block_manager.get_ref_count(block_id)
        for block_id in range(manager.kv_cache.shape[2])
    ]
    return (
        copy.deepcopy(manager.sequences),
        manager.table.cpu.tolist(),
        manager.block_table.tolist(),
        counts,
        manager.block_manager.get_num_free_blocks(),
        manager.kv_cache.tolist(),
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    num_spare=st.integers(0, 4),
    block_size=st.integers(1, 4),
    row=st.integers(2, 5),
    prompts=st.lists(st.integers(0, 7), min_size=1, max_size=2),
    forks=st.lists(st.integers(0, 1), max_size=3),
    num_new=st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_room_for_all_or_for_none(num_spare, block_size, row, prompts, forks, num_new):
    num_blocks = sum(-(-num_tokens // block_size) for num_tokens in prompts) + num_spare
    manager = PagedAttentionManager(max(num_blocks, 1), block_size, 1, 1, 8, row)
    manager.kv_cache.copy_(torch.arange(manager.kv_cache.numel()).view_as(manager.kv_cache))
    for seq_id, num_tokens in enumerate(prompts):
        try:
            manager.add_sequence(seq_id, num_tokens)
        except SequenceTooLongError:
            return
    for parent in forks:
        manager.fork_sequence(parent % len(prompts), len(manager.sequences))
    batch = [
        (seq_id, num_tokens)
        for seq_id, num_tokens in zip(manager.sequences, num_new)
        if num_tokens
    ]
    if not batch:
        return
    trial, fits = copy.deepcopy(manager), True
    try:
        for seq_id, num_tokens in batch:
            for _ in range(num_tokens):
                trial.append_token(seq_id)
    except (OutOfBlocksError, SequenceTooLongError):
        fits = False
    before = books(manager)
    if fits:
        manager.append_tokens(batch)
        assert books(manager) == books(trial)
    else:
        with pytest.raises((OutOfBlocksError, SequenceTooLongError)):
            manager.append_tokens(batch)
        assert books(manager) == before


def good_batch():
    """q, k_cache, v_cache and the metadata of a batch that is right: 3 queries, 2 of 5 keys
    and 1 of 4, blocks of 4.
    """
    k_cache, v_cache = torch.ones(2, 6, 4, 2, 8)
    metadata = BatchMetadata(
        cumulative_lengths([2, 1]),
        torch.tensor([5, 4], dtype=torch.int32),
        torch.tensor([[3, 0, -1], [5, -1, -1]], dtype=torch.int32),
        torch.tensor([15, 0, 23]),
    )
    return {
        "q": torch.ones(3, 6, 8),
        "k_cache": k_cache,
        "v_cache": v_cache,
        "metadata": metadata,
    }


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


BAD_BATCHES = {
    "int64 table": (
        {"block_table": torch.tensor([[3, 0], [5, -1]])},
        TypeError,
        ["block_table", "int32", "int64"],
    ),
    "float table": (
        {"block_table": torch.ones(2, 2)},
        TypeError,
        ["block_table", "int32", "float32"],
    ),
    "table as a list": (
        {"block_table": [[3, 0], [5, -1]]},
        TypeError,
        ["block_table", "tensor", "list"],
    ),
    "table of one row": (
        {"block_table": int32(3, 0)},
        ValueError,
        ["block_table", "(2, max_blocks_per_seq)", "(2,)"],
    ),
    "table of other rows": (
        {"block_table": int32([3, 0])},
        ValueError,
        ["block_table", "(2, max_blocks", "(1, 2)"],
    ),
    "table too narrow": (
        {"block_table": int32([3], [5])},
        ValueError,
        ["seq_lens_kv", "5 keys", "2 blocks", "1 entries"],
    ),
    "negative id": (
        {"block_table": int32([3, -1], [5, -1])},
        ValueError,
        ["block_table, row 0", "-1", "0 to 5"],
    ),
    "id out of range": (
        {"block_table": int32([3, 0], [6, -1])},
        ValueError,
        ["block_table, row 1", "6", "0 to 5"],
    ),
    "int64 lengths": (
        {"seq_lens_kv": torch.tensor([5, 4])},
        TypeError,
        ["seq_lens_kv", "int32", "int64"],
    ),
    "0-d lengths": (
        {"seq_lens_kv": int32(5, 4)[0]},
        ValueError,
        ["seq_lens_kv", "(num_seqs,)", "()"],
    ),
    "empty batch": (
        {"seq_lens_kv": int32()},
        ValueError,
        ["seq_lens_kv is empty", "at least one"],
    ),
    "too few keys": (
        {"seq_lens_kv": int32(1, 4)},
        ValueError,
        ["seq_lens_kv", "sequence 0", "1 keys", "2 queries"],
    ),
    "int64 starts": (
        {"cu_seqlens_q": torch.tensor([0, 2, 3])},
        TypeError,
        ["cu_seqlens_q", "int32", "int64"],
    ),
    "lengths as starts": (
        {"cu_seqlens_q": int32(2, 1)},
        ValueError,
        ["cu_seqlens_q", "(3,)", "(2,)"],
    ),
    "no leading zero": (
        {"cu_seqlens_q": int32(1, 2, 3)},
        ValueError,
        ["cu_seqlens_q", "0 to the 3 tokens", "1 to 3"],
    ),
    "wrong total": (
        {"cu_seqlens_q": int32(0, 2, 4)},
        ValueError,
        ["cu_seqlens_q", "3 tokens", "0 to 4"],
    ),
    "zero-length query": (
        {"cu_seqlens_q": int32(0, 3, 3)},
        ValueError,
        ["cu_seqlens_q", "sequence 1", "0 queries"],
    ),
    "falling starts": (
        {"cu_seqlens_q": int32(0, 4, 3)},
        ValueError,
        ["cu_seqlens_q", "sequence 1", "-1 queries"],
    ),
    "q without heads": (
        {"q": torch.ones(3, 48)},
        ValueError,
        ["q", "(num_tokens, num_q_heads, 8)", "(3, 48)"],
    ),
    "q of another head size": (
        {"q": torch.ones(3, 6, 4)},
        ValueError,
        ["q", "8)", "(3, 6, 4)"],
    ),
    "q of another dtype": (
        {"q": torch.ones(3, 6, 8).double()},
        TypeError,
        ["q", "float32", "float64"],
    ),
    "heads that do not divide": (
        {"q": torch.ones(3, 5, 8)},
        ValueError,
        ["q", "multiple", "2 KV heads", "5 heads"],
    ),
    "no heads": ({"q": torch.ones(3, 0, 8)}, ValueError, ["q", "2 KV heads", "0 heads"]),
    "flat cache": (
        {"k_cache": torch.ones(24, 2, 8)},
        ValueError,
        ["k_cache", "num_blocks", "(24, 2, 8)"],
    ),
    "caches that disagree": (
        {"v_cache": torch.ones(6, 4, 2, 4)},
        ValueError,
        ["v_cache", "(6, 4, 2, 8)", "(6, 4, 2, 4)"],
    ),
    "caches of two dtypes": (
        {"v_cache": torch.ones(6, 4, 2, 8).half()},
        TypeError,
        ["v_cache", "float32", "float16"],
    ),
}


@pytest.mark.parametrize("changes, error, words", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_is_refused_by_name(changes, error, words):
    batch = good_batch()
    for name, value in changes.items():
        if name in batch:
            batch[name] = value
        else:
            batch["metadata"] = replace(batch["metadata"], **{name: value})
    with pytest.raises(error) as caught:
        attn_paged_torch(**batch)
    assert all(word in str(caught.value) for word in words), caught.value
    assert torch.equal(batch["k_cache"], torch.ones_like(batch["k_cache"]))


def test_the_good_batch_is_good():
    batch = good_batch()
    assert torch.equal(attn_paged_torch(**batch), torch.ones(3, 6, 8))


BAD_SCHEDULES = {
    "empty": ([], ValueError, ["empty", "at least one"]),
    "twice": ([(0, 1), (1, 1), (0, 2)], ValueError, ["sequence 0", "more than once"]),
    "no token": ([(0, 1), (1, 0)], ValueError, ["sequence 1", "0 tokens", "1 or more"]),
    "negative": ([(0, -2)], ValueError, ["sequence 0", "-2 tokens", "1 or more"]),
    "half a token": ([(0, 1), (1, 0.5)], TypeError, ["float"]),
    "unknown": ([(0, 1), (7, 1)], UnknownSequenceError, ["no sequence 7", "[0, 1]"]),
}


@pytest.mark.parametrize("scheduled, error, words", BAD_SCHEDULES.values(), ids=BAD_SCHEDULES)
@pytest.mark.parametrize("call", [PagedAttentionManager.append_tokens, build_metadata])
def test_a_bad_schedule_is_refused_by_name(call, scheduled, error, words):
    manager = PagedAttentionManager(6, 4, 1, 1, 3, 3)
    manager.add_sequence(0, 3)
    manager.add_sequence(1, 4)
    before = books(manager)
    with pytest.raises(error) as caught:
        call(manager, scheduled)
    assert all(word in str(caught.value) for word in words), caught.value
    assert books(manager) == before


def test_metadata_wants_room_that_is_there():
    manager = PagedAttentionManager(6, 4, 1, 1, 3, 3)
    manager.add_sequence(0, 3)
    with pytest.raises(
        ValueError, match="sequence 0 is scheduled with 4 tokens, and it has 3"
    ):
        build_metadata(manager, [(0, 4)])


K = torch.ones(2, 2, 8)
BAD_WRITES = {
    "int32 slots": ({"slots": int32(0, 1)}, TypeError, ["slots", "int64", "int32"]),
    "slots in two dimensions": (
        {"slots": torch.tensor([[0, 1]])},
        ValueError,
        ["slots", "(num_tokens,)", "(1, 2)"],
    ),
    "negative slot": (
        {"slots": torch.tensor([0, -1])},
        ValueError,
        ["slots", "-1 (entry 1)", "0 to 23"],
    ),
    "slot out of range": (
        {"slots": torch.tensor([24, 1])},
        ValueError,
        ["slots", "24 (entry 0)", "0 to 23"],
    ),
    "slot twice": ({"slots": torch.tensor([7, 7])}, ValueError, ["slots", "7 more than once"]),
    "more keys than slots": (
        {"k": torch.ones(3, 2, 8)},
        ValueError,
        ["k", "(2, 2, 8)", "(3, 2, 8)"],
    ),
    "values of other heads": (
        {"v": torch.ones(2, 1, 8)},
        ValueError,
        ["v", "(2, 2, 8)", "(2, 1, 8)"],
    ),
    "keys of another dtype": ({"k": K.half()}, TypeError, ["k", "float32", "float16"]),
    "values that are no tensor": ({"v": [1.0]}, TypeError, ["v", "tensor", "list"]),
    "caches that disagree": (
        {"v_cache": torch.zeros(6, 4, 1, 8)},
        ValueError,
        ["v_cache", "(6, 4, 2, 8)"],
    ),
}


@pytest.mark.parametrize("changes, error, words", BAD_WRITES.values(), ids=BAD_WRITES)
def test_a_bad_write_is_refused_by_name(changes, error, words):
    arguments = {
        "k_cache": torch.zeros(6, 4, 2, 8),
        "v_cache": torch.zeros(6, 4, 2, 8),
        "slots": torch.tensor([0, 1]),
        "k": K,
        "v": K,
        **changes,
    }
    with pytest.raises(error) as caught:
        write_kv(**arguments)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not arguments["k_cache"].any() and not arguments["v_cache"].any()


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
