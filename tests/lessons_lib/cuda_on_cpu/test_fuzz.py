"""Any metadata, any table, any text: a result or an error in words, and the process lives on.
`python -m tools.fuzz` does the same for texts and C++, with fuzzers that are guided by
coverage. Any calls of the manager: paged_attention/pool/test_kv_cache.py.
"""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import our_answer
from lessons_lib import CompileError, checks
from lessons_lib.cuda.signatures import functions
from lessons_lib.cuda_on_cpu.rewrite import rewrite
from lessons_lib.paths import KERNELS
from paged_attention.attention.metadata import attn_paged_torch, build_metadata
from paged_attention.attention.paged_kernel import attn_paged_cuda
from paged_attention.ladder.decode import attn_paged_fast
from paged_attention.pool.kv_cache import PagedAttentionManager

few = settings(max_examples=100)
NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_SIZE = 6, 4, 2, 64

NUMBERS = st.one_of(st.integers(-3, 30), st.sampled_from([2**31 - 1, -(2**31), 2**24]))
DTYPES = st.sampled_from([torch.int32] * 6 + [torch.int64, torch.float32, torch.bool])
SHAPES = st.none() | st.none() | st.lists(st.integers(0, 4), max_size=3)


@st.composite
def spoiled(draw, tensor):
    """`tensor` with some numbers replaced; sometimes another dtype or shape, or no tensor."""
    result = tensor.clone()
    for _ in range(draw(st.integers(0, 3))):
        if result.numel():
            result.view(-1)[draw(st.integers(0, result.numel() - 1))] = draw(NUMBERS)
    shape, dtype = draw(SHAPES), draw(DTYPES)
    if shape is not None:
        result = torch.zeros(shape, dtype=result.dtype)
    other = draw(st.sampled_from(["tensor"] * 12 + ["list", "none", "strided"]))
    if other == "strided" and result.dim():
        return torch.stack([result, result], dim=-1)[..., 0].to(dtype)
    return {"list": result.tolist(), "none": None}.get(other, result.to(dtype))


def make_batch():
    """Queries, caches and metadata of three sequences with 5, 1 and 8 tokens, of which 2, 1
    and 8 are new.
    """
    manager = PagedAttentionManager(
        NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_SIZE, max_num_seqs=3, max_blocks_per_seq=3
    )
    for seq_id, length in enumerate((5, 1, 8)):
        manager.add_sequence(seq_id, length)
    manager.kv_cache.normal_(generator=torch.Generator().manual_seed(1))
    metadata = build_metadata(manager, [(0, 2), (1, 1), (2, 8)])
    return torch.ones(11, 4, HEAD_SIZE), *manager.kv_cache[0], metadata


def result_or_words(call, *errors):
    """The result of a call, or None if it raised one of `errors` with a text."""
    try:
        return call()
    except errors as error:
        assert str(error).strip()
        return None


@few
@given(st.data())
def test_any_metadata_is_computed_or_refused(data):
    q, k_cache, v_cache, metadata = make_batch()
    fields = ("cu_seqlens_q", "seq_lens_kv", "block_table", "slot_mapping")
    metadata = replace(
        metadata, **{name: data.draw(spoiled(getattr(metadata, name))) for name in fields}
    )
    output = result_or_words(
        lambda: attn_paged_torch(q, k_cache, v_cache, metadata), ValueError, TypeError
    )
    assert output is None or output.shape == q.shape


@pytest.mark.parametrize("attend", [attn_paged_cuda, attn_paged_fast])
@few
@given(data=st.data())
def test_any_table_is_computed_or_refused_and_no_input_changes(attend, data):
    _, k_cache, v_cache, metadata = make_batch()
    inputs = [torch.ones(3, 4, HEAD_SIZE), k_cache, v_cache]
    before = [tensor.clone() for tensor in inputs]
    table, lengths = (
        data.draw(spoiled(tensor)) for tensor in (metadata.block_table, metadata.seq_lens_kv)
    )
    output = result_or_words(lambda: attend(*inputs, table, lengths), ValueError, TypeError)
    assert output is None or (output.shape == inputs[0].shape and output.isfinite().all())
    assert all(map(torch.equal, inputs, before))


TEXTS = [path.read_text() for path in (*KERNELS.glob("*.cu*"), *KERNELS.glob("ladder/*.cu*"))]


MARKS = ("<<<", ">>>", '"', "/*", "\\", "\0")


@st.composite
def edited(draw, texts):
    """One of the texts with some pieces cut out, doubled, or replaced by pieces of others."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        other = draw(st.sampled_from(texts))
        piece_start = draw(st.integers(0, len(other)))
        borrowed = other[piece_start : piece_start + 30]
        piece = draw(st.sampled_from(["", text[start:end] * 2, borrowed, *MARKS]))
        text = text[:start] + piece + text[end:]
    return text


@settings(few, max_examples=300)
@given(edited(TEXTS))
def test_any_edit_of_a_kernel_is_read_or_refused_with_its_line(text):
    for reader in (rewrite, lambda text: functions({"text": text})):
        try:
            found = reader(text)
        except CompileError as error:
            assert error.line is None or 1 <= error.line <= text.count("\n") + 1
        else:
            assert reader is not rewrite or found.count("\n") == text.count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("exercise", ["1.1", "6.2", "6.4", "7.2"])
def test_any_edit_of_an_answer_gets_a_verdict(exercise, seed):
    """Built and run for real: lines dropped, doubled or swapped, and one character changed."""
    choose = random.Random(seed)
    lines = our_answer(checks.find(exercise)).split("\n")
    for _ in range(choose.randint(1, 3)):
        first = choose.randrange(len(lines))
        second = choose.randrange(len(lines))
        lines[first : first + 1] = choose.choice([[], [lines[first]] * 2, [lines[second]]])
    text = "\n".join(lines)
    place = choose.randrange(len(text))
    result = checks.run(
        exercise, text[:place] + choose.choice("+-<>0;)*&") + text[place + 1 :]
    )
    assert result.passed or result.message.strip()
