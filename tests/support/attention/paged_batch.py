"""Batches of decodes and of prompts, with poison wherever no token is."""

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from batch_metadata import metadata_of
from dense_attention import decode_attention
from paged_attention.prefill.kernels import PagedPrefill
from poison import poison_of

TARGETS = ["fast", "checked", pytest.param("gpu", marks=pytest.mark.gpu)]
on_each_target = pytest.mark.parametrize("target", TARGETS)
# The kernel computes in float32. What it gives is rounded once more, to 11 bits in float16 and
# to 8 in bfloat16.
CLOSE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-3, "atol": 1e-4},
    torch.bfloat16: {"rtol": 8e-3, "atol": 1e-4},
}
NAN = float("nan")


@dataclass(frozen=True)
class Batch:
    """The sizes of a batch of decodes.

    lens: each sequence's keys.
    gap: how many numbers lie between the query rows of two tokens.
    garbage: what the table holds after the blocks of a context.
    poison: what every slot without a token holds, and every gap.
    """

    lens: tuple
    num_q_heads: int = 2
    num_kv_heads: int = 1
    head_size: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    gap: int = 0
    garbage: int = -1
    seed: int = 0
    poison: float = NAN

    @property
    def model(self) -> dict:
        """What a rung is made for."""
        names = "num_q_heads", "num_kv_heads", "head_size", "block_size", "dtype"
        return {name: getattr(self, name) for name in names}

    def tensors(self, target: str = "fast") -> dict[str, Tensor]:
        """The arguments of attn_paged_cuda: blocks in any order, and poison."""
        q, *caches, table = filled(self, len(self.lens), self.lens, target)
        lens = torch.tensor(self.lens, dtype=torch.int32, device=q.device)
        names = "q", "k_cache", "v_cache", "block_table", "context_lens"
        return dict(zip(names, (q, *caches, table, lens), strict=True))


@dataclass(frozen=True)
class PrefillBatch(Batch):
    """The sizes of a batch of prompts.

    lens: each sequence's queries and keys.
    shared: how many first blocks the sequences have in common, as far as they are full.
    """

    num_q_heads: int = 4
    head_size: int = 128
    dtype: torch.dtype = torch.float16
    shared: int = 0

    def tensors(self, target="fast"):
        """q, the caches and the metadata."""
        num_tokens, keys = sum(q_len for q_len, _ in self.lens), [n for _, n in self.lens]
        *tensors, table = filled(self, num_tokens, keys, target, self.shared)
        return *tensors, metadata_of(self.lens, table, device_of(target))


def filled(sizes: Batch, num_tokens: int, num_keys, target: str, shared: int = 0):
    """q, the caches and the block table of sequences with this many keys each."""
    generator = torch.Generator().manual_seed(sizes.seed)
    poison = poison_of(sizes.poison, sizes.dtype)
    needed = [-(-keys // sizes.block_size) for keys in num_keys]
    ids = torch.randperm(sum(needed) + 2, generator=generator, dtype=torch.int32)
    table = torch.full((len(needed), max(needed, default=0) + 1), sizes.garbage).int()
    of_block = sizes.block_size, sizes.num_kv_heads, sizes.head_size
    caches = torch.full((2, len(ids), *of_block), poison)
    for row, (count, end) in enumerate(zip(needed, accumulate(needed), strict=True)):
        table[row, :count] = ids[end - count : end]
        full = min(shared, num_keys[row] // sizes.block_size)
        table[row, :full] = ids[-2:][:full]
        blocks = torch.randn(2, count, *of_block, generator=generator)
        blocks.flatten(1, 2)[:, num_keys[row] :] = poison
        caches[:, table[row, :count].long()] = blocks
    row_length = sizes.num_q_heads * sizes.head_size
    q = torch.randn(num_tokens, row_length + sizes.gap, generator=generator)
    q[:, row_length:] = poison
    q, caches, table = (x.to(device_of(target)) for x in (q.to(sizes.dtype), caches, table))
    q = q[:, :row_length].unflatten(1, (sizes.num_q_heads, sizes.head_size))
    return q, *caches.to(sizes.dtype), table


def device_of(target):
    return "cuda" if target == "gpu" else "cpu"


def planned(number, batch, metadata, target, **how):
    """A rung of the prefill ladder, for batches of this shape."""
    lengths = metadata.cu_seqlens_q, metadata.seq_lens_kv
    return PagedPrefill(number, *lengths, **batch.model, target=target, **how)


def assert_right(out, tensors):
    q = tensors["q"]
    assert (out.dtype, out.shape, out.device) == (q.dtype, q.shape, q.device)
    expected = decode_attention(**tensors)
    torch.testing.assert_close(out.cpu().double(), expected, **CLOSE[out.dtype])


class Recorder:
    """A library that keeps what its paged_attention is given."""

    def __init__(self, library=None):
        self.library, self.fields = library, None

    def paged_attention(self, **fields):
        self.fields = fields
        if self.library is not None:
            self.library.paged_attention(**fields)
