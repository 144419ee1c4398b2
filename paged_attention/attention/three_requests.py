"""The requests that lesson 04 decodes: their hidden states, and a pool with their past."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from paged_attention.attention.by_request import forward_prefill
from paged_attention.attention.layer import AttentionLayer
from paged_attention.pool.kv_cache import PagedAttentionManager

BLOCK_SIZE = 4
LENGTHS = {1: 10, 2: 3, 3: 7}  # of each sequence, in tokens


def manager_in_disorder(layer: AttentionLayer, order: list[int]) -> PagedAttentionManager:
    """Makes a manager that hands out its blocks in this order. Its empty slots hold NaN.

    order: all block ids of the pool.
    """
    manager = PagedAttentionManager(
        len(order),
        BLOCK_SIZE,
        layer.num_kv_heads,
        layer.head_size,
        max_num_seqs=4,
        max_blocks_per_seq=6,
    )
    manager.kv_cache.fill_(math.nan)
    for _ in order:
        manager.block_manager.allocate()
    for block_id in reversed(order):
        manager.block_manager.free(block_id)
    return manager


def three_requests(
    layer: AttentionLayer, order: list[int]
) -> tuple[dict[int, Tensor], PagedAttentionManager]:
    """Starts sequences 1, 2 and 3, of 10, 3 and 7 tokens, by lesson 03's prefill.

    order: the block ids of the pool, in the order in which they are handed out.
    Returns the hidden states of each sequence, (num_tokens, dim), and the manager that holds
    their keys and values. They are the same each time.
    """
    torch.manual_seed(4)
    dim = layer.wq.shape[1]
    texts = {seq_id: torch.randn(length, dim) for seq_id, length in LENGTHS.items()}
    manager = manager_in_disorder(layer, order)
    for seq_id, tokens in texts.items():
        manager.add_sequence(seq_id, len(tokens))
        padded = F.pad(tokens, (0, 0, 0, -len(tokens) % BLOCK_SIZE))
        blocks = padded.view(-1, BLOCK_SIZE, dim)
        forward_prefill(layer, blocks, [len(blocks)], [seq_id], manager)
    return texts, manager
