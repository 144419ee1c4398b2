"""Attention over one request's blocks (lesson 03).

There are two forms: all scores at once, and tiled by block with the online softmax.
"""

import math

import torch
from torch import Tensor

from paged_attention.attention.softmax_state import NO_KEY, SoftmaxState
from paged_attention.pool.slots import slot_mapping, write_kv
from paged_attention.validate import check_prefill


def share_heads(k: Tensor, num_q_heads: int) -> Tensor:
    """Repeats keys or values so that each query head has its own.

    Query head h reads KV head h // (num_q_heads // num_kv_heads).

    k: (..., num_kv_heads, head_size).
    Returns (..., num_q_heads, head_size).
    """
    return k.repeat_interleave(num_q_heads // k.shape[-2], dim=-2)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """Computes causal attention of one request, with all scores at once.

    Slots past the last token are not part of the request, and may hold NaN. A request without
    tokens has no blocks. The arguments are not changed.

    q: (num_blocks, block_size, num_q_heads, head_size).
    k, v: (num_blocks, block_size, num_kv_heads, head_size).
    length: the request's number of tokens, 0 or more.
    Returns the shape of q, with 0 past the last token.
    """
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    # BEGIN SOLUTION 3.1
    # (heads, length, head_size)
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].transpose(0, 1) for x in (q, k, v))
    # (heads, length, length)
    scores = q_rows @ k_rows.transpose(1, 2) / math.sqrt(q.shape[-1])
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(diagonal=1)
    weights = torch.softmax(scores.masked_fill(future, NO_KEY), dim=-1)
    o = q.new_zeros(q.shape)
    o.view(-1, *q.shape[2:])[:length] = (weights @ v_rows).transpose(0, 1)
    return o
    # END SOLUTION


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """Computes the same as plain_attention(), from the same arguments, block by block.

    At any time there are at most block_size x block_size scores of a head. The sums are kept
    in float32 at least, as SoftmaxState keeps them. The result has q's dtype.
    Source: Dao, FlashAttention-2, arXiv:2307.08691, algorithm 1, without its GPU part.
    """
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    # BEGIN SOLUTION 3.4
    o = q.new_zeros(q.shape)
    # (num_blocks, heads, block_size, head_size)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    position = torch.arange(num_blocks * block_size, device=q.device)
    position = position.view(num_blocks, block_size)
    v = v.masked_fill((position >= length)[:, None, :, None], 0.0)
    for i in range(num_blocks):
        state = SoftmaxState(num_q_heads, block_size, head_size=head_size, dtype=q.dtype)
        for j in range(i + 1):
            # (heads, block_size, block_size)
            scores = q[i] @ k[j].transpose(1, 2) / math.sqrt(head_size)
            hidden = (position[j] > position[i][:, None]) | (position[j] >= length)
            state.update(scores.masked_fill(hidden, NO_KEY), v[j][:, None])
        o[i] = state.finish()[0].transpose(0, 1)
    o.view(-1, num_q_heads, head_size)[length:] = 0.0
    return o
    # END SOLUTION


def forward_prefill(
    layer,
    x: Tensor,
    request_num_blocks: list[int],
    seq_ids: list[int],
    manager,
    attend=plain_attention,
):
    """Computes one attention layer over several requests, and fills the pool.

    Each request attends only to its own tokens. Their keys and values are written into the
    pool. A request may have 0 tokens, and then 0 blocks. x is not changed.

    layer: an AttentionLayer.
    x: (total_blocks, block_size, dim), the requests' blocks one after another.
    request_num_blocks: each request's number of blocks in x.
    seq_ids: each request's sequence in the manager, in any order. The manager may have others.
    manager: a PagedAttentionManager.
    attend: plain_attention or tiled_attention.
    Returns the shape of x, with 0 past each request's last token.
    Raises ValueError when the arguments disagree.
    Raises LookupError for a sequence that the manager does not have.
    """
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    k_cache, v_cache = manager.kv_cache[layer.index]
    # BEGIN SOLUTION 3.5
    q, k, v = layer.project(x)  # (total_blocks, block_size, heads, head_size)
    o, start = torch.zeros_like(q), 0
    for seq_id, num_blocks in zip(seq_ids, request_num_blocks, strict=True):
        mine = slice(start, start + num_blocks)
        length = manager.get(seq_id).length
        o[mine] = attend(q[mine], k[mine], v[mine], length)
        block_ids = manager.get_block_table_for_seq(seq_id)
        positions = torch.arange(length, device=x.device)
        slots = slot_mapping(block_ids, positions, manager.block_size)
        k_rows, v_rows = (rows[mine].flatten(0, 1)[:length] for rows in (k, v))
        write_kv(k_cache, v_cache, slots, k_rows, v_rows)
        start += num_blocks
    return layer.output(o)
    # END SOLUTION
