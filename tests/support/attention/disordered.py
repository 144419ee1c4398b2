"""A manager that hands out blocks in a random order, with poison in every slot; and tokens."""

import math

import torch

from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.pool.slots import slot_mapping, write_kv


def disordered_manager(num_blocks, *sizes, generator, poison=math.nan, **more):
    """sizes and more: what PagedAttentionManager takes after the number of blocks."""
    manager = PagedAttentionManager(num_blocks, *sizes, **more)
    manager.kv_cache.fill_(poison)
    for _ in range(num_blocks):
        manager.block_manager.allocate()
    for block_id in torch.randperm(num_blocks, generator=generator).tolist():
        manager.block_manager.free(block_id)
    return manager


def write_tokens(manager, seq_id, k, v, layer=0):
    """Keys and values of a sequence's first tokens, as earlier steps have written them."""
    table = manager.get_block_table_for_seq(seq_id)
    slots = slot_mapping(table, torch.arange(len(k)), manager.block_size)
    write_kv(*manager.kv_cache[layer], slots, k, v)
