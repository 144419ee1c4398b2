"""What tests put where no sequence has keys and values. It must not change any result."""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

POISONS = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "3e38": 3e38}
poisons = st.sampled_from(list(POISONS.values()))
on_each_device = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
)


def poison_of(poison: float, dtype: torch.dtype) -> float:
    """The poison, or the largest number of dtype where it is finite and too large for that."""
    return min(poison, torch.finfo(dtype).max) if math.isfinite(poison) else poison


def fill_where(caches: Tensor, where: Tensor, poison: float) -> None:
    """Poisons slots, in place. caches: (..., num_blocks, block_size, num_kv_heads, head_size).
    where: bool (num_blocks, block_size).
    """
    caches[..., where.to(caches.device), :, :] = poison_of(poison, caches.dtype)


def owned_slots(manager, kept=()) -> Tensor:
    """Slots that hold a token of a sequence, and all those of the blocks in `kept`: bool
    (num_blocks, block_size).
    """
    _, _, num_blocks, block_size, _, _ = manager.kv_cache.shape
    owned = torch.zeros(num_blocks, block_size, dtype=torch.bool)
    for seq_id, sequence in manager.sequences.items():
        for index, block_id in enumerate(manager.blocks_of(seq_id)):
            owned[block_id, : sequence.length - index * block_size] = True
    owned[list(kept)] = True
    return owned
