"""Batches of decodes, with poison wherever no token is, and dense attention over them."""

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paged_attention.slots import slot_mapping, write_kv
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

    gap: how many numbers lie between the query rows of two sequences.
    garbage: what the table holds after the blocks of a context.
    poison: what every slot without a token holds, and every gap.
    """

    context_lens: tuple[int, ...]
    num_q_heads: int = 2
    num_kv_heads: int = 1
    head_size: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    gap: int = 0
    garbage: int = -1
    seed: int = 0
    poison: float = NAN

    def tensors(self, target: str = "fast") -> dict[str, Tensor]:
        """The arguments of attn_paged_cuda: blocks in any order, and poison."""
        generator = torch.Generator().manual_seed(self.seed)
        num_needed = [-(-context_len // self.block_size) for context_len in self.context_lens]
        num_blocks = sum(num_needed) + 2
        poison = poison_of(self.poison, self.dtype)
        caches = torch.full(
            (2, num_blocks, self.block_size, self.num_kv_heads, self.head_size), poison
        )
        table = torch.full(
            (len(num_needed), max(num_needed) + 1), self.garbage, dtype=torch.int32
        )
        ids = torch.randperm(num_blocks, generator=generator, dtype=torch.int32)
        ends = list(accumulate(num_needed))
        for row, (count, end, length) in enumerate(
            zip(num_needed, ends, self.context_lens, strict=True)
        ):
            table[row, :count] = ids[end - count : end]
            if length:
                slots = slot_mapping(table[row], torch.arange(length), self.block_size)
                write_kv(
                    *caches,
                    slots,
                    *torch.randn(2, length, *caches.shape[3:], generator=generator),
                )
        row_length = self.num_q_heads * self.head_size
        q = torch.randn(len(num_needed), row_length + self.gap, generator=generator).to(
            self.dtype
        )
        q[:, row_length:] = poison
        q = q.to(device_of(target))[:, :row_length].unflatten(
            1, (self.num_q_heads, self.head_size)
        )
        k_cache, v_cache = caches.to(self.dtype)
        others = {
            "k_cache": k_cache,
            "v_cache": v_cache,
            "block_table": table,
            "context_lens": torch.tensor(self.context_lens, dtype=torch.int32),
        }
        return {"q": q} | {
            name: tensor.to(device_of(target)) for name, tensor in others.items()
        }


def device_of(target):
    return "cuda" if target == "gpu" else "cpu"


def dense_attention(q, k_cache, v_cache, block_table, context_lens):
    """Each sequence by PyTorch's own attention, in float64; zeros for an empty context."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for seq, context_len in enumerate(context_lens.tolist()):
        if context_len:
            blocks = block_table[seq, : -(-context_len // k_cache.shape[1])].long()
            heads_first = [
                x.cpu().double().transpose(0, 1)
                for x in (
                    q[seq, None],
                    *(
                        cache[blocks].flatten(0, 1)[:context_len]
                        for cache in (k_cache, v_cache)
                    ),
                )
            ]
            out[seq] = scaled_dot_product_attention(*heads_first, enable_gqa=True)[:, 0]
    return out


def assert_right(out, tensors):
    assert (out.dtype, out.shape, out.device) == (
        tensors["q"].dtype,
        tensors["q"].shape,
        tensors["q"].device,
    )
    torch.testing.assert_close(
        out.cpu().double(), dense_attention(**tensors), **CLOSE[out.dtype]
    )


class Recorder:
    """A library that keeps what its paged_attention is given."""

    def __init__(self, library=None):
        self.library, self.fields = library, None

    def paged_attention(self, **fields):
        self.fields = fields
        if self.library is not None:
            self.library.paged_attention(**fields)
