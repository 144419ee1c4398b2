"""A manager that hands out blocks in a random order, with poison in every slot."""

import math

import torch

from paged_attention.kv_cache import PagedAttentionManager


def disordered_manager(num_blocks, *sizes, generator, poison=math.nan, **more):
    """sizes and more: what PagedAttentionManager takes after the number of blocks."""
    manager = PagedAttentionManager(num_blocks, *sizes, **more)
    manager.kv_cache.fill_(poison)
    for _ in range(num_blocks):
        manager.block_manager.allocate()
    for block_id in torch.randperm(num_blocks, generator=generator).tolist():
        manager.block_manager.free(block_id)
    return manager
