"""The paged kernel against dense attention in float64, on the CPU and on a GPU; bad input
refused by name.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_lib.cuda import KernelError
from paged_attention import decode
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    build_metadata,
    cumulative_lengths,
)
from paged_attention.paged_kernel import (
    SHARED_BYTES_FOR_SCORES,
    attn_paged_cuda,
    paged_attention_library,
)
from paged_attention.slots import slot_mapping, write_kv
from paged_batch import CLOSE, NAN, Batch, Recorder, assert_right, device_of, on_each_target
from poison import POISONS, poisons

pytestmark = pytest.mark.usefixtures("one_thread")
few = settings(max_examples=50, deadline=None, derandomize=True)


LENGTHS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1])), min_size=1, max_size=4
)


@on_each_target
@few
@given(
    lengths=LENGTHS,
    block_size=st.sampled_from([1, 8, 16, 17]),
    ratio=st.sampled_from([1, 2, 3, 7]),
    num_kv_heads=st.integers(1, 2),
    head_size=st.sampled_from([1, 64, 80, 128, 256]),
    dtype=st.sampled_from(list(CLOSE)),
    gap=st.sampled_from([0, 5]),
    garbage=st.sampled_from([-1, 0, 12_345]),
    seed=st.integers(0, 10**6),
    poison=poisons,
)
def test_any_batch_is_dense_attention(
    target,
    lengths,
    block_size,
    ratio,
    num_kv_heads,
    head_size,
    dtype,
    gap,
    garbage,
    seed,
    poison,
):
    contexts = tuple(max(0, blocks * block_size + past) for blocks, past in lengths)
    batch = Batch(
        contexts,
        ratio * num_kv_heads,
        num_kv_heads,
        head_size,
        block_size,
        dtype,
        gap,
        garbage,
        seed,
        poison,
    )
    tensors, library = batch.tensors(target), paged_attention_library(target)
    if target != "gpu":
        library.options(seed=seed % 4)
    assert_right(attn_paged_cuda(**tensors, library=library), tensors)


@on_each_target
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_what_no_sequence_owns_changes_no_bit(target, dtype, poison):
    batch = Batch((40, 0, 129, 16), 6, 2, 80, dtype=dtype, gap=5, poison=0.0)
    clean = attn_paged_cuda(**batch.tensors(target), library=paged_attention_library(target))
    for garbage in (-1, 0, 1, 2, 12_345):  # 0, 1 and 2 are blocks of the pool, in use or not
        tensors = replace(batch, poison=poison, garbage=garbage).tensors(target)
        assert torch.equal(
            attn_paged_cuda(**tensors, library=paged_attention_library(target)), clean
        )


@on_each_target
@pytest.mark.parametrize("context_len", [127, 128, 129, 700])
def test_contexts_around_the_number_of_threads(target, context_len):
    tensors = Batch((context_len, context_len - 1), 6, 2, 80, dtype=torch.float16).tensors(
        target
    )
    assert_right(attn_paged_cuda(**tensors, library=paged_attention_library(target)), tensors)


@on_each_target
@pytest.mark.parametrize(
    "context_len, in_workspace",
    [
        (SHARED_BYTES_FOR_SCORES // 4, False),
        (SHARED_BYTES_FOR_SCORES // 4 + 1, True),
        (20_000, True),
    ],
)
def test_a_context_may_be_of_any_length(target, context_len, in_workspace):
    tensors = Batch((3, context_len), 1, 1, 64).tensors(target)
    recorder = Recorder(paged_attention_library(target))
    assert_right(attn_paged_cuda(**tensors, library=recorder), tensors)
    assert (recorder.fields["scores"] is not None) == in_workspace


@on_each_target
def test_scores_that_expf_cannot_take(target):
    tensors = Batch((40, 3), 3, 1, 64).tensors(target)
    tensors["q"] *= 1_000
    assert_right(attn_paged_cuda(**tensors, library=paged_attention_library(target)), tensors)


@on_each_target
def test_it_is_the_reference_of_lesson_05(target):
    tensors = Batch((1, 16, 17, 70), 6, 2).tensors(target)
    metadata = BatchMetadata(
        cumulative_lengths([1] * 4), tensors["context_lens"], tensors["block_table"], None
    )
    expected = attn_paged_torch(tensors["q"], tensors["k_cache"], tensors["v_cache"], metadata)
    out = attn_paged_cuda(**tensors, library=paged_attention_library(target))
    torch.testing.assert_close(out, expected, **CLOSE[torch.float32])


@on_each_target
def test_a_batch_of_empty_contexts_gives_zeros(target):
    tensors = Batch((0, 0), 3).tensors(target)
    no_blocks = {name: tensors[name][:0] for name in ("k_cache", "v_cache")}
    no_entries = {"block_table": tensors["block_table"][:, :0].contiguous()}
    for without in ({}, no_blocks, no_entries):
        out = attn_paged_cuda(**tensors | without, library=paged_attention_library(target))
        assert torch.equal(out, torch.zeros_like(tensors["q"]))


def test_one_query_may_stand_for_all_sequences():
    tensors = Batch((9, 20, 4), 4, 2).tensors()
    tensors["q"] = tensors["q"][:1].expand(3, -1, -1)
    assert_right(attn_paged_cuda(**tensors), tensors)


def test_another_scale():
    tensors = Batch((9,)).tensors()
    scaled = attn_paged_cuda(**tensors, scale=0.5)
    expected = attn_paged_cuda(**tensors | {"q": tensors["q"] * 4})  # 4 / sqrt(64) is 0.5
    torch.testing.assert_close(scaled, expected, **CLOSE[torch.float32])


def test_a_scale_of_zero_gives_the_mean_of_the_values():
    tensors = Batch((9, 20), 4, 2).tensors()
    out = attn_paged_cuda(**tensors, scale=0.0)
    assert_right(out, tensors | {"q": torch.zeros_like(tensors["q"])})


@on_each_target
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_from_the_manager_to_the_output(target, dtype):
    """The manager of lesson 02 fills the pool, the metadata of lesson 05 describe the batch;
    attention block by block, put together with the combine of lesson 04, gives what the kernel
    gives.
    """
    generator = torch.Generator().manual_seed(3)
    manager = PagedAttentionManager(20, 16, 2, 64, 4, 6, dtype=dtype, device=device_of(target))
    manager.kv_cache.fill_(NAN)
    for seq_id, length in {"a": 40, "b": 15, "c": 16}.items():
        manager.add_sequence(seq_id, length)
    manager.fork_sequence("a", "d")
    scheduled = [(seq_id, 1) for seq_id in reversed(list(manager.sequences))]
    for seq_id, _ in scheduled:
        length = manager.get(seq_id).length
        positions = torch.arange(length, device=manager.kv_cache.device)
        slots = slot_mapping(
            manager.get_block_table_for_seq(seq_id), positions, manager.block_size
        )
        write_kv(
            *manager.kv_cache[0],
            slots,
            *torch.randn(2, length, 2, 64, generator=generator).to(manager.kv_cache),
        )
    manager.append_tokens(scheduled)
    metadata = build_metadata(manager, scheduled)
    new = torch.randn(2, len(scheduled), 2, 64, generator=generator).to(manager.kv_cache)
    write_kv(*manager.kv_cache[0], metadata.slot_mapping, *new)
    q = torch.randn(len(scheduled), 6, 64, generator=generator).to(manager.kv_cache)
    k_cache, v_cache = manager.kv_cache[0]
    out = attn_paged_cuda(
        q,
        k_cache,
        v_cache,
        metadata.block_table,
        metadata.seq_lens_kv,
        paged_attention_library(target),
    )
    assert_right(
        out,
        {
            "q": q,
            "k_cache": k_cache,
            "v_cache": v_cache,
            "block_table": metadata.block_table,
            "context_lens": metadata.seq_lens_kv,
        },
    )
    for row, (seq_id, _) in enumerate(scheduled):
        blocks, length = manager.blocks_of(seq_id), manager.get(seq_id).length
        num_valid = torch.tensor(
            [min(16, length - 16 * index) for index in range(len(blocks))], device=q.device
        )
        parts = decode.block_attention(
            q[row].expand(len(blocks), -1, -1).double(),
            k_cache[blocks].double(),
            v_cache[blocks].double(),
            num_valid,
        )
        torch.testing.assert_close(
            out[row].double(), decode.combine_result(*parts)[0], **CLOSE[dtype]
        )


@on_each_target
def test_a_launch_that_fails_is_reported_and_the_next_one_works(target):
    """CUDA allows 65,535 blocks in a grid's second dimension, so as many heads."""
    heads = Batch((1,), 65_536, 1, 1).tensors(target)
    with pytest.raises(KernelError, match="paged_attention_kernel") as caught:
        attn_paged_cuda(**heads, library=paged_attention_library(target))
    assert caught.value.kind == "bad-launch"
    tensors = Batch((5, 3)).tensors(target)
    assert_right(attn_paged_cuda(**tensors, library=paged_attention_library(target)), tensors)


@pytest.mark.parametrize(
    "q_shape, cache_shape, dtype, error, words",
    [
        (
            (2, 4, 8),
            (3, 4, 2, 8),
            torch.float64,
            TypeError,
            "q must be torch.float32, torch.f",
        ),
        ((2, 4, 257), (3, 4, 2, 257), torch.float32, ValueError, "1 to 256, not 257"),
        ((2, 4, 0), (3, 4, 2, 0), torch.float32, ValueError, "1 to 256, not 0"),
        ((2, 4, 8), (3, 0, 2, 8), torch.float32, ValueError, "a slot in each block and a KV"),
        ((2, 4, 8), (3, 4, 0, 8), torch.float32, ValueError, "a slot in each block and a KV"),
    ],
)
def test_what_the_kernel_is_not_made_for_is_refused(q_shape, cache_shape, dtype, error, words):
    recorder, caches = Recorder(), torch.zeros(2, *cache_shape, dtype=dtype)
    table, lens = torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    with pytest.raises(error, match=words):
        attn_paged_cuda(torch.zeros(q_shape, dtype=dtype), *caches, table, lens, recorder)
    assert recorder.fields is None
