"""Attention over one request's blocks (lesson 03): plain, and tiled by block with the online softmax."""

import math

import torch
from torch import Tensor

from paged_attention.slots import slot_mapping, write_kv
from paged_attention.softmax_state import NO_KEY, SoftmaxState
from paged_attention.validate import check_prefill


def share_heads(k: Tensor, num_q_heads: int) -> Tensor:
    """Keys or values with a head for each query head: query head h reads KV head h // (num_q_heads // num_kv_heads).

    k: (..., num_kv_heads, head_size). Returns (..., num_q_heads, head_size).
    """
    return k.repeat_interleave(num_q_heads // k.shape[-2], dim=-2)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """Causal attention of one request, all scores at once.

    q: (num_blocks, block_size, num_q_heads, head_size). k, v: (num_blocks, block_size, num_kv_heads, head_size).
    length: the request's tokens, 0 or more; what stands behind them in the last block is not part of it, and may be NaN.
    No tokens, no blocks. Returns the shape of q, 0 behind the last token. Changes none of its arguments.
    """
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    # BEGIN SOLUTION 3.1
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].transpose(0, 1) for x in (q, k, v))  # (heads, length, head_size)
    scores = q_rows @ k_rows.transpose(1, 2) / math.sqrt(q.shape[-1])  # (heads, length, length)
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(diagonal=1)
    weights = torch.softmax(scores.masked_fill(future, NO_KEY), dim=-1)
    o = q.new_zeros(q.shape)
    o.view(-1, *q.shape[2:])[:length] = (weights @ v_rows).transpose(0, 1)
    return o
    # END SOLUTION


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """The same as plain_attention(), block by block: never more than block_size x block_size scores of a head at once.

    length: 0 or more, as there. The sums are kept in float32 at least, as SoftmaxState keeps them; the result has q's dtype.
    Source: Dao, FlashAttention-2, arXiv:2307.08691, algorithm 1, without its GPU part.
    """
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    # BEGIN SOLUTION 3.4
    o = q.new_zeros(q.shape)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (num_blocks, heads, block_size, head_size)
    position = torch.arange(num_blocks * block_size, device=q.device).view(num_blocks, block_size)
    v = v.masked_fill((position >= length)[:, None, :, None], 0.0)
    for i in range(num_blocks):
        state = SoftmaxState(num_q_heads, block_size, head_size=head_size, dtype=q.dtype)
        for j in range(i + 1):
            scores = q[i] @ k[j].transpose(1, 2) / math.sqrt(head_size)  # (heads, block_size, block_size)
            hidden = (position[j] > position[i][:, None]) | (position[j] >= length)
            state.update(scores.masked_fill(hidden, NO_KEY), v[j][:, None])
        o[i] = state.finish()[0].transpose(0, 1)
    o.view(-1, num_q_heads, head_size)[length:] = 0.0
    return o
    # END SOLUTION


def forward_prefill(layer, x: Tensor, request_num_blocks: list[int], seq_ids: list[int], manager, attend=plain_attention):
    """One attention layer over several requests at once, each for itself; their keys and values go into the pool.

    layer: an AttentionLayer. x: (total_blocks, block_size, dim), the requests' blocks one after the other.
    request_num_blocks: for each request, its number of blocks in x. seq_ids: for each request, its sequence in the manager,
    in any order; the manager may have others. A sequence may have 0 tokens, and then 0 blocks.
    attend: plain_attention or tiled_attention.
    Returns the shape of x, 0 behind each request's last token. Raises ValueError when the arguments disagree. x is not
    changed.
    """
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    k_cache, v_cache = manager.kv_cache[layer.index]
    # BEGIN SOLUTION 3.5
    q, k, v = layer.project(x)  # (total_blocks, block_size, heads, head_size)
    o, start = torch.zeros_like(q), 0
    for seq_id, num_blocks in zip(seq_ids, request_num_blocks, strict=True):
        mine, length = slice(start, start + num_blocks), manager.get(seq_id).length
        o[mine] = attend(q[mine], k[mine], v[mine], length)
        positions = torch.arange(length, device=x.device)
        slots = slot_mapping(manager.get_block_table_for_seq(seq_id), positions, manager.block_size)
        write_kv(k_cache, v_cache, slots, k[mine].flatten(0, 1)[:length], v[mine].flatten(0, 1)[:length])
        start += num_blocks
    return layer.output(o)
    # END SOLUTION
