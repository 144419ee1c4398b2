"""Decode in PyTorch (lesson 04).

Attention goes block by block, through the block table. Then the parts are combined.
"""

import math

import torch
from torch import Tensor

from paged_attention.attention.by_request import share_heads
from paged_attention.attention.softmax_state import NO_KEY, finite, widen
from paged_attention.pool.slots import slot_mapping, write_kv
from paged_attention.validate import check_decoding


def dispatch(q: Tensor, request_num_blocks: Tensor) -> Tensor:
    """Repeats each request's query, once for each of its blocks.

    q: (num_seqs, num_q_heads, head_size).
    request_num_blocks: int64 (num_seqs,), 0 or more.
    Returns (total_blocks, num_q_heads, head_size), in q's dtype. The arguments stay as they
        are.
    """
    # BEGIN SOLUTION 4.1
    return q.repeat_interleave(request_num_blocks, dim=0)
    # END SOLUTION


def block_attention(
    q: Tensor, k: Tensor, v: Tensor, num_valid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes attention of one query over one block, for many such pairs at once.

    q: (total_blocks, num_q_heads, head_size). total_blocks may be 0; then so is that size of
        each result.
    k, v: (total_blocks, block_size, num_kv_heads, head_size).
    num_valid: int64 (total_blocks,), the tokens in each block. Slots past them do not count.
    Returns (o, m, l), in float32 where q has fewer bits, else in q's dtype.
        o: (total_blocks, num_q_heads, head_size), already divided by l.
        m, l: (total_blocks, num_q_heads).
        A block without tokens gives o = 0, m = -inf, l = 0.
    The arguments stay as they are.
    """
    # BEGIN SOLUTION 4.2
    q, k, v = map(widen, (q, k, v))
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    # (total_blocks, block_size)
    behind = torch.arange(k.shape[1], device=k.device) >= num_valid[:, None]
    scores = torch.einsum("nhd,nthd->nht", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(behind[:, None, :], NO_KEY)
    m = scores.amax(-1)
    p = torch.exp(scores - finite(m)[..., None])
    l = p.sum(-1)
    o = torch.einsum("nht,nthd->nhd", p, v.masked_fill(behind[:, :, None, None], 0.0))
    return o / l.masked_fill(l == 0, 1.0)[..., None], m, l
    # END SOLUTION


def combine_result(o: Tensor, m: Tensor, l: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Combines the parts of one attention, along the first dimension.

    o: (num_parts, ..., head_size), each part already divided by its l.
    m, l: (num_parts, ...).
    Returns (o, m, l) without the first dimension: what attention over all keys at once would
        give. They are float32 where the parts have fewer bits, else of the parts' dtype. The
        arguments stay as they are.
    """
    # BEGIN SOLUTION 4.3
    o, m, l = map(widen, (o, m, l))
    m_all = m.amax(0)
    weight = torch.exp(m - finite(m_all)) * l
    l_all = weight.sum(0)
    o_all = (weight[..., None] * o).sum(0) / l_all.masked_fill(l_all == 0, 1.0)[..., None]
    return o_all, m_all, l_all
    # END SOLUTION


def combine_segments(
    o: Tensor, m: Tensor, l: Tensor, request_num_blocks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Does the same as combine_result() for every request at once, without a loop over them.

    The dtypes are those of combine_result(). A request without blocks gives o = 0, m = -inf
    and l = 0.

    o: (total_blocks, num_q_heads, head_size).
    m, l: (total_blocks, num_q_heads).
    request_num_blocks: int64 (num_seqs,).
    Returns o (num_seqs, num_q_heads, head_size) and m, l (num_seqs, num_q_heads). The
        arguments stay as they are.
    """
    # BEGIN SOLUTION 4.5
    o, m, l = map(widen, (o, m, l))
    num_seqs = len(request_num_blocks)
    # (total_blocks,): each block's request
    request = torch.arange(num_seqs, device=m.device).repeat_interleave(request_num_blocks)
    m_all = m.new_full((num_seqs, m.shape[1]), NO_KEY)
    m_all = m_all.scatter_reduce(0, request[:, None].expand_as(m), m, "amax")
    weight = torch.exp(m - finite(m_all)[request]) * l
    l_all = torch.zeros_like(m_all).index_add(0, request, weight)
    o_all = o.new_zeros(num_seqs, *o.shape[1:]).index_add(0, request, weight[..., None] * o)
    return o_all / l_all.masked_fill(l_all == 0, 1.0)[..., None], m_all, l_all
    # END SOLUTION


def past_blocks(seq_ids: list[int], manager) -> tuple[Tensor, ...]:
    """Finds the blocks with the past of each sequence: all its tokens but the last.

    Returns int64 block_ids (total_blocks,), num_valid (total_blocks,) and request_num_blocks
    (num_seqs,). The blocks are in order, request after request.
    """
    block_ids = []
    num_valid = []
    request_num_blocks = []
    for seq_id in seq_ids:
        past = manager.get(seq_id).length - 1
        in_blocks = [
            min(manager.block_size, past - start)
            for start in range(0, past, manager.block_size)
        ]
        block_ids += manager.blocks_of(seq_id)[: len(in_blocks)]
        num_valid += in_blocks
        request_num_blocks.append(len(in_blocks))
    return tuple(
        torch.tensor(numbers, dtype=torch.int64, device=manager.block_table.device)
        for numbers in (block_ids, num_valid, request_num_blocks)
    )


def own_token(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the attention that each new token pays to itself, as (o, m, l).

    q: (num_seqs, num_q_heads, head_size).
    k, v: (num_seqs, num_kv_heads, head_size).
    """
    return block_attention(
        q, k[:, None], v[:, None], torch.ones(len(q), dtype=torch.int64, device=q.device)
    )


def forward_decoding_loop(layer, x: Tensor, seq_ids: list[int], manager) -> Tensor:
    """Computes one attention layer over one new token of each sequence, request by request.

    The new token is the sequence's last one. The manager has room for it already, and holds
    the keys and values of the tokens before it. Those of the new token are written here.
    Nothing else is changed, x included.

    layer: an AttentionLayer.
    x: (num_seqs, dim), the new tokens' hidden states.
    seq_ids: the sequences.
    manager: a PagedAttentionManager.
    Returns (num_seqs, dim).
    """
    check_decoding(layer, x, seq_ids, manager)
    k_cache, v_cache = manager.kv_cache[layer.index]
    # BEGIN SOLUTION 4.4
    q, k, v = layer.project(x)
    block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
    parts = block_attention(
        dispatch(q, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid
    )
    own = own_token(q, k, v)
    o, start = torch.zeros_like(q), 0
    for i, num_blocks in enumerate(request_num_blocks.tolist()):
        mine = slice(start, start + num_blocks)
        joined = [torch.cat([part[mine], last[i : i + 1]]) for part, last in zip(parts, own)]
        o[i] = combine_result(*joined)[0]
        start += num_blocks
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(o)
    # END SOLUTION


def forward_decoding(layer, x: Tensor, seq_ids: list[int], manager) -> Tensor:
    """Computes the same as forward_decoding_loop(), without a loop over the requests."""
    check_decoding(layer, x, seq_ids, manager)
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
    parts = block_attention(
        dispatch(q, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid
    )
    past = combine_segments(*parts, request_num_blocks)
    o, _, _ = combine_result(
        *(torch.stack(pair) for pair in zip(past, own_token(q, k, v), strict=True))
    )
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(o.to(x.dtype))


def write_new_tokens(
    k_cache: Tensor, v_cache: Tensor, seq_ids: list[int], manager, k: Tensor, v: Tensor
) -> None:
    """Writes the key and value of each sequence's last token into the pool.

    k, v: (num_seqs, num_kv_heads, head_size).
    """
    slots = []
    for seq_id in seq_ids:
        position = torch.tensor([manager.get(seq_id).length - 1], device=k.device)
        slots.append(
            slot_mapping(manager.get_block_table_for_seq(seq_id), position, manager.block_size)
        )
    write_kv(k_cache, v_cache, torch.cat(slots), k, v)
