"""Keys and values of 8 bits: half the bytes of a block, so twice the tokens in a pool.

A number of 8 bits (e4m3) has three bits after its first one, so rounding changes it by a 16th
of itself at most. The largest is 448, and below 2^-6 neighbours are 2^-9 apart. Keys and
values are written as they are. A factor for each layer and KV head would move them within this
range, and gains nothing where they fit into it: with any factor from 1/16 to 64 the small
model's logits change as much.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paged_attention.attention.fused import Attend
from paged_attention.attention.metadata import BatchMetadata
from paged_attention.engine.attention import PagedStep
from paged_attention.ladder.rungs import FP8
from paged_attention.pool.block_table import NO_BLOCK
from paged_attention.transfer import send

LARGEST = torch.finfo(FP8).max  # 448


def with_kv_dtype(
    kv_dtype: torch.dtype | None, model, block_size: int, plan: Callable, forward: Callable
) -> tuple[Any, Callable, Callable]:
    """Chooses the numbers of an engine's pool.

    kv_dtype: what is wanted; None means the model's.
    plan, forward: a path and the function that a layer calls, for numbers of the model.
    Returns the pool's dtype, and a path and a function for that one.
    Raises ValueError for a kv_dtype that is neither the model's nor fp8.
    """
    if kv_dtype in (None, model.dtype):
        return model.dtype, plan, forward
    if kv_dtype == FP8:
        return FP8, widened(plan, block_size), narrowed(forward)
    raise ValueError(
        f"kv_dtype must be {FP8}, or None for the model's {model.dtype}, not {kv_dtype}"
    )


def narrow(x: Tensor) -> Tensor:
    """Rounds to the nearest number of 8 bits.

    What is larger than 448, infinity too, becomes 448. A NaN stays one.
    """
    return x.clamp(-LARGEST, LARGEST).to(FP8)


def narrowed(forward: Callable) -> Callable:
    """Makes a layer's attention, such as paged_attention_forward(), write numbers of 8 bits.

    It sees their bytes: PyTorch cannot do everything with fp8 that it can do with bytes.
    """

    def forward_narrowed(module, query, key, value, *arguments, paged: PagedStep, **others):
        def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
            return paged.attend(q, k_cache.view(FP8), v_cache.view(FP8))

        key, value = (narrow(heads).view(torch.uint8) for heads in (key, value))
        of_bytes = replace(paged, kv_cache=paged.kv_cache.view(torch.uint8), attend=attend)
        return forward(module, query, key, value, *arguments, paged=of_bytes, **others)

    return forward_narrowed


class WidenedBlocks:
    """Copies of the blocks that some sequences use, for attention that takes no fp8.

    A block that several sequences use is copied once.

    `table`: int32 (num_seqs, most blocks of a sequence), the places of a sequence's blocks
        among the copies, and -1 after its last block.
    """

    def __init__(
        self, table: np.ndarray, kv_lens: np.ndarray, block_size: int, device: torch.device
    ):
        """table: the sequences' rows of the block table. kv_lens: their numbers of keys."""
        num_blocks = -(-kv_lens // block_size)
        table = table[:, : num_blocks.max()]
        used = np.arange(table.shape[1]) < num_blocks[:, None]
        blocks, places = np.unique(table[used], return_inverse=True)
        local = np.full(table.shape, NO_BLOCK)
        local[used] = places
        self.blocks = send(blocks, torch.int64, device)
        self.table = send(local, torch.int32, device)

    def widen(self, cache: Tensor, dtype: torch.dtype) -> Tensor:
        """Copies the blocks of one cache, as numbers of `dtype`."""
        copies = cache.view(torch.uint8).index_select(0, self.blocks)
        return copies.view(FP8).to(dtype)


def widened(path: Callable, block_size: int) -> Callable:
    """Makes a path, which takes caches of the model's dtype, take those of 8 bits."""

    def plan(metadata: BatchMetadata) -> Attend:
        table, kv_lens = (
            tensor.cpu().numpy() for tensor in (metadata.block_table, metadata.seq_lens_kv)
        )
        blocks = WidenedBlocks(table, kv_lens, block_size, metadata.block_table.device)
        attend = path(replace(metadata, block_table=blocks.table))
        return lambda q, k_cache, v_cache: attend(
            q, blocks.widen(k_cache, q.dtype), blocks.widen(v_cache, q.dtype)
        )

    return plan
