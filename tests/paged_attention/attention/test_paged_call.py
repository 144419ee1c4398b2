"""What the paged kernel of lesson 06 is told, on a stand-in for its library."""

import math
from types import SimpleNamespace

import pytest
import torch

from int32 import integers
from lessons_lib.inline import read_kernel
from paged_attention import paged_kernel
from paged_attention.paged_kernel import KERNEL_FILES, attn_paged_cuda, paged_attention_library
from unsaid import unsaid

CPU = torch.device("cpu")


class Library:
    """Keeps what the kernel is told."""

    def __init__(self):
        self.told = []

    def paged_attention(self, **arguments):
        self.told.append(arguments)


def tensors(longest=5, dtype=torch.float16):
    q = torch.zeros(2, 5, 8, dtype=dtype)[:, :4]  # the rows are apart
    cache = torch.zeros(longest // 16 + 2, 16, 2, 8, dtype=dtype)
    table = torch.zeros(2, -(-longest // 16) + 1, dtype=torch.int32)
    return dict(
        q=q,
        k_cache=cache,
        v_cache=cache.clone(),
        block_table=table,
        context_lens=integers(3, longest),
    )


@pytest.mark.parametrize(
    "dtype, number", [(torch.float32, 0), (torch.float16, 1), (torch.bfloat16, 2)]
)
def test_the_kernel_is_told_what_it_computes(dtype, number):
    library, given = Library(), tensors(dtype=dtype)
    with unsaid():
        out = attn_paged_cuda(**given, library=library)
    (told,) = library.told
    assert all(told.pop(name) is tensor for name, tensor in (given | dict(out=out)).items())
    assert told == dict(
        scores=None,
        q_stride=5 * 8,
        num_seqs=2,
        num_q_heads=4,
        num_kv_heads=2,
        head_size=8,
        block_size=16,
        max_blocks_per_seq=2,
        max_context_len=5,
        dtype=number,
        scale=1 / math.sqrt(8),
    )
    assert (out.shape, out.dtype, out.device) == ((2, 4, 8), dtype, CPU)


def test_a_factor_may_be_given():
    library = Library()
    attn_paged_cuda(**tensors(), library=library, scale=0.0)
    assert library.told[0]["scale"] == 0.0


@pytest.mark.parametrize("longest, lies_outside", [(11_776, False), (11_777, True)])
def test_scores_that_shared_memory_cannot_hold_have_room(longest, lies_outside):
    library, given = Library(), tensors(longest)
    with unsaid():
        attn_paged_cuda(**given, library=library)
    scores = library.told[0]["scores"]
    if lies_outside:
        assert (scores.shape, scores.dtype) == ((2, 4, longest), torch.float32)
        assert scores.device == CPU
    else:
        assert scores is None


def test_without_a_library_the_courses_own_is_taken(monkeypatch):
    library, asked = Library(), []

    def own(target):
        asked.append(target)
        return library

    monkeypatch.setattr(paged_kernel, "paged_attention_library", own)
    attn_paged_cuda(**tensors())
    assert asked == ["fast"] and len(library.told) == 1
    monkeypatch.setattr(paged_kernel, "check_paged_decode", lambda *given: None)
    monkeypatch.setattr(torch, "empty", lambda *sizes, **how: None)
    q = SimpleNamespace(
        shape=(2, 4, 8), is_cuda=True, dtype=torch.float16, device="cuda", stride=lambda _: 32
    )
    attn_paged_cuda(**tensors() | dict(q=q))
    assert asked == ["fast", "gpu"]


def test_what_does_not_fit_is_refused_before_the_launch():
    library = Library()
    with pytest.raises(ValueError, match="sequence 1 33 tokens"):
        attn_paged_cuda(**tensors() | dict(context_lens=integers(3, 33)), library=library)
    with pytest.raises(TypeError, match="k_cache must be torch.float16"):
        attn_paged_cuda(**tensors() | dict(k_cache=torch.zeros(2, 16, 2, 8)), library=library)
    assert not library.told


@pytest.mark.parametrize("target", [None, "checked"])
def test_the_courses_own_is_built_from_its_files(monkeypatch, target):
    built = []
    monkeypatch.setattr(
        paged_kernel, "build_cuda", lambda *texts, **words: built.append((texts, words))
    )
    paged_attention_library.__wrapped__(target)
    words = dict(names=KERNEL_FILES, target=target, name="paged_attention")
    assert built == [(tuple(map(read_kernel, KERNEL_FILES)), words)]
