"""Batches of prompts, with poison wherever no token is, and attention over them in float64."""

import math
from dataclasses import dataclass
from itertools import accumulate

import torch

from paged_attention.metadata import BatchMetadata
from paged_attention.prefill import PagedPrefill
from paged_batch import device_of
from poison import poison_of


@dataclass(frozen=True)
class PrefillBatch:
    """The sizes of a batch of prompts.

    lens: each sequence's queries and keys.
    gap: how many numbers lie between the rows of two tokens in q.
    garbage: what the table holds after the blocks of a context.
    poison: what every slot without a key holds, and every gap.
    shared: how many first blocks the sequences have in common, as far as they are full.
    """

    lens: tuple[tuple[int, int], ...]
    num_q_heads: int = 4
    num_kv_heads: int = 1
    head_size: int = 128
    block_size: int = 16
    dtype: torch.dtype = torch.float16
    gap: int = 0
    garbage: int = -1
    seed: int = 0
    poison: float = math.nan
    shared: int = 0

    def tensors(self, target="fast"):
        """q, the caches and the metadata: blocks in any order, and poison."""
        generator = torch.Generator().manual_seed(self.seed)
        needed = [-(-keys // self.block_size) for _, keys in self.lens]
        num_blocks = sum(needed) + 2
        poison = poison_of(self.poison, self.dtype)
        caches = torch.full(
            (2, num_blocks, self.block_size, self.num_kv_heads, self.head_size), poison
        )
        table = torch.full(
            (len(needed), max(needed, default=0) + 1), self.garbage, dtype=torch.int32
        )
        ids = torch.randperm(num_blocks, generator=generator, dtype=torch.int32)
        for row, (count, end) in enumerate(zip(needed, accumulate(needed), strict=True)):
            table[row, :count] = ids[end - count : end]
            full = min(self.shared, self.lens[row][1] // self.block_size)
            table[row, :full] = ids[-2:][:full]
        for row, (_, num_keys) in enumerate(self.lens):
            for first in range(0, num_keys, self.block_size):
                size = min(self.block_size, num_keys - first)
                caches[:, table[row, first // self.block_size], :size] = torch.randn(
                    2, size, self.num_kv_heads, self.head_size, generator=generator
                )
        num_tokens, row_numbers = (
            sum(q_len for q_len, _ in self.lens),
            self.num_q_heads * self.head_size,
        )
        q = torch.full((num_tokens, row_numbers + self.gap), poison, dtype=self.dtype)
        q[:, :row_numbers] = torch.randn(num_tokens, row_numbers, generator=generator)
        q = q.to(device_of(target))[:, :row_numbers]
        metadata = metadata_of(self.lens, table, device_of(target))
        caches = caches.to(self.dtype).to(device_of(target))
        return q.unflatten(1, (self.num_q_heads, self.head_size)), *caches, metadata


def metadata_of(lens, table, device="cpu"):
    starts = [0, *accumulate(q_len for q_len, _ in lens)]
    return BatchMetadata(
        cu_seqlens_q=torch.tensor(starts, dtype=torch.int32, device=device),
        seq_lens_kv=torch.tensor([n for _, n in lens], dtype=torch.int32, device=device),
        block_table=table.to(device),
        slot_mapping=torch.empty(0, dtype=torch.int64, device=device),
    )


def attention(q, k_cache, v_cache, metadata, scale=None):
    """Each sequence by itself in float64, over its gathered keys."""
    scale = 1 / math.sqrt(q.shape[2]) if scale is None else scale
    out = torch.zeros(q.shape, dtype=torch.float64)
    starts, block_size = metadata.cu_seqlens_q.tolist(), k_cache.shape[1]
    group = q.shape[1] // k_cache.shape[2]
    for seq, num_keys in enumerate(metadata.seq_lens_kv.tolist()):
        begin, end = starts[seq : seq + 2]
        blocks = metadata.block_table[seq, : -(-num_keys // block_size)].long()
        keys, values = (
            cache[blocks].flatten(0, 1)[:num_keys].cpu().double().repeat_interleave(group, 1)
            for cache in (k_cache, v_cache)
        )
        scores = scale * torch.einsum("qhd,khd->hqk", q[begin:end].cpu().double(), keys)
        last = torch.arange(num_keys - (end - begin), num_keys)[:, None]
        hidden = torch.arange(num_keys) > last
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        out[begin:end] = torch.einsum("hqk,khd->qhd", weights, values)
    return out


def planned(number, batch, metadata, target, **how):
    return PagedPrefill(
        number,
        metadata.cu_seqlens_q,
        metadata.seq_lens_kv,
        num_q_heads=batch.num_q_heads,
        num_kv_heads=batch.num_kv_heads,
        head_size=batch.head_size,
        block_size=batch.block_size,
        dtype=batch.dtype,
        target=target,
        **how,
    )
