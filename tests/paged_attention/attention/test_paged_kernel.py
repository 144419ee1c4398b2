"""The paged kernel against dense attention in float64, on the CPU and on a GPU; bad input
refused by name.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import few
from lessons_lib.cuda.library import KernelError
from paged_attention.attention.paged_kernel import (
    SHARED_BYTES_FOR_SCORES,
    attn_paged_cuda,
    paged_attention_library,
)
from paged_batch import CLOSE, Batch, Recorder, assert_right, on_each_target
from poison import poisons

pytestmark = pytest.mark.usefixtures("one_thread")
some = few(20, drawn_anew=50)


LENGTHS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1])), min_size=1, max_size=4
)


@on_each_target
@some
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
    target, lengths, block_size, ratio, num_kv_heads, **others
):
    contexts = tuple(max(0, blocks * block_size + past) for blocks, past in lengths)
    heads = dict(num_q_heads=ratio * num_kv_heads, num_kv_heads=num_kv_heads)
    batch = Batch(contexts, block_size=block_size, **heads, **others)
    tensors, library = batch.tensors(target), paged_attention_library(target)
    if target != "gpu":
        library.options(seed=batch.seed % 4)
    assert_right(attn_paged_cuda(**tensors, library=library), tensors)


@on_each_target
@pytest.mark.parametrize(
    "context_len, in_workspace",
    [
        (127, False),
        (128, False),  # as many as threads
        (129, False),
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
@pytest.mark.parametrize("factor", [1_000.0, 0.0, -1.0])
def test_other_scales(target, factor):
    """Scores that expf cannot take, the mean of the values, and the other way round."""
    tensors = Batch((40, 3), 3, 1, 64).tensors(target)
    library = paged_attention_library(target)
    out = attn_paged_cuda(**tensors, scale=factor / 8, library=library)
    assert_right(out, tensors | {"q": factor * tensors["q"]})


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


@on_each_target
def test_a_launch_that_fails_is_reported_and_the_next_one_works(target):
    """CUDA allows 65,535 blocks in a grid's second dimension, so as many heads."""
    heads = Batch((1,), 65_536, 1, 1).tensors(target)
    with pytest.raises(KernelError, match="paged_attention_kernel") as caught:
        attn_paged_cuda(**heads, library=paged_attention_library(target))
    assert caught.value.kind == "bad-launch"
    tensors = Batch((5, 3)).tensors(target)
    assert_right(attn_paged_cuda(**tensors, library=paged_attention_library(target)), tensors)
