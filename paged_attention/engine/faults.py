"""Faults to plant into an engine (lesson 08).

Each is one that someone has really made, except the last, which is no fault at all.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from paged_attention.attention.metadata import BatchMetadata, attn_paged_torch, each_query
from paged_attention.attention.softmax_state import NO_KEY, widen
from paged_attention.engine.request import SamplingParams


def fill_with_leftovers(engine, prompts: list[list[int]]) -> None:
    """Fills every block of the pool with keys and values of these prompts.

    A real pool looks like that after an hour. If attention then reads another request's slots,
    it shows in the output.

    Raises ValueError if the engine has requests.
    """
    if engine.requests:
        raise ValueError("the engine has requests; their keys and values would be lost")
    # (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size)
    kv_cache = engine.manager.kv_cache.fill_(math.nan)
    engine.generate(prompts, SamplingParams(max_new_tokens=1))
    engine.prefix_cache.clear()
    full = (~kv_cache[0, 0].isnan().flatten(1).any(1)).nonzero().flatten()
    kv_cache.copy_(kv_cache[:, :, full[torch.arange(kv_cache.shape[2]) % len(full)]])


def read_through(engine, change) -> None:
    """Makes the engine's attention read through change(metadata).

    It still writes where it should.
    """
    plan = engine.runner.plan
    engine.runner.plan = lambda metadata: plan(change(metadata))


def table_one_step_late(engine) -> None:
    """A block that was added in this step is not in the table yet.

    Block 0 of the pool is in its place.
    """

    def change(metadata: BatchMetadata) -> BatchMetadata:
        table = metadata.block_table.clone()
        lengths = metadata.seq_lens_kv - metadata.cu_seqlens_q.diff()
        for row, length in enumerate(lengths.tolist()):
            if length:  # it has computed before, and has that step's table
                table[row, -(-length // engine.manager.block_size) :] = 0
        return replace(metadata, block_table=table)

    read_through(engine, change)


def block_of_another(engine) -> None:
    """In place of each sequence's second block, attention reads the next block of the pool.

    That one may belong to another sequence.
    """

    def change(metadata: BatchMetadata) -> BatchMetadata:
        table = metadata.block_table.clone()
        if table.shape[1] > 1:
            owned = table[:, 1] >= 0
            table[owned, 1] = (table[owned, 1] + 1) % len(engine.manager.kv_cache[0, 0])
        return replace(metadata, block_table=table)

    read_through(engine, change)


def full_blocks_permuted(engine) -> None:
    """A step of single new tokens visits the full blocks in reverse order.

    Keys carry their positions, so this does no harm.
    """

    def change(metadata: BatchMetadata) -> BatchMetadata:
        table = metadata.block_table.clone()
        for row, length in enumerate(metadata.seq_lens_kv.tolist()):
            num_full = (length - 1) // engine.manager.block_size
            if metadata.cu_seqlens_q[row + 1] - metadata.cu_seqlens_q[row] == 1:
                table[row, :num_full] = table[row, :num_full].flip(0)
        return replace(metadata, block_table=table)

    read_through(engine, change)


def tail_not_masked(engine) -> None:
    """Attention to a block covers all of its slots, even those past the last token."""

    def plan(metadata: BatchMetadata):
        return lambda q, k_cache, v_cache: each_alone(
            q, k_cache, v_cache, metadata, mask_tail=False
        )

    engine.runner.plan = plan


def wrong_head_mapping(engine) -> None:
    """Query head h takes KV head h % num_kv_heads.

    The heads of a group are then no longer neighbours.
    """

    def plan(metadata: BatchMetadata):
        def attend(q, k_cache, v_cache):
            group = q.shape[1] // k_cache.shape[2]
            # heads by h % num_kv_heads
            dealt = torch.arange(q.shape[1], device=q.device).view(group, -1).T.flatten()
            o = torch.empty_like(q)
            o[:, dealt] = attn_paged_torch(q[:, dealt], k_cache, v_cache, metadata)
            return o

        return attend

    engine.runner.plan = plan


def accumulator_not_rescaled(engine) -> None:
    """When a new maximum comes, the online softmax does not shrink the output so far."""

    def plan(metadata: BatchMetadata):
        return lambda q, k_cache, v_cache: each_alone(
            q, k_cache, v_cache, metadata, rescale=False
        )

    engine.runner.plan = plan


def each_alone(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    metadata: BatchMetadata,
    mask_tail: bool = True,
    rescale: bool = True,
) -> Tensor:
    """Computes attention of all queries at once, block after block with an online softmax.

    mask_tail, rescale: False plants a fault.
    """
    block_table, context_lens = each_query(metadata)
    block_size, group = k_cache.shape[1], q.shape[1] // k_cache.shape[2]
    dtype, q = q.dtype, widen(q)
    m = q.new_full(q.shape[:2], NO_KEY)
    l, o = torch.zeros_like(m), torch.zeros_like(q)
    for index in range(-(-int(context_lens.max()) // block_size)):
        positions = index * block_size + torch.arange(block_size, device=q.device)
        if mask_tail:
            end = context_lens
        else:
            end = -(-metadata.seq_lens_kv // block_size) * block_size
            end = end.repeat_interleave(metadata.cu_seqlens_q.diff())
            end = torch.where(
                context_lens
                < metadata.seq_lens_kv.repeat_interleave(metadata.cu_seqlens_q.diff()),
                context_lens,
                end,
            )  # inside a chunk the causal mask still holds
        hidden = positions >= end[:, None]  # (num_tokens, block_size)
        k, v = (
            widen(cache[block_table[:, index].clamp(min=0)]).repeat_interleave(group, dim=2)
            for cache in (k_cache, v_cache)
        )
        v = v.masked_fill(hidden[..., None, None], 0.0)  # what is hidden may be NaN
        scores = torch.einsum("nhd,nthd->nht", q, k) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(hidden[:, None], NO_KEY)
        larger = torch.maximum(m, scores.amax(-1))
        p, shrink = torch.exp(scores - larger[..., None]), torch.exp(m - larger)
        l = l * shrink + p.sum(-1)
        o = (o * shrink[..., None] if rescale else o) + torch.einsum("nht,nthd->nhd", p, v)
        m = larger
    return (o / l[..., None]).to(dtype)


def position_plus_one(engine) -> None:
    """Single new tokens get the position after their own."""
    flatten_batch = engine.runner.flatten_batch

    def shifted(scheduled):
        tokens, positions, last = flatten_batch(scheduled)
        ends = [
            index
            for index, (_, num_tokens) in zip(last, scheduled, strict=True)
            if num_tokens == 1
        ]
        return (
            tokens,
            [position + (index in ends) for index, position in enumerate(positions)],
            last,
        )

    engine.runner.flatten_batch = shifted


FAULTS = {
    "table one step late": table_one_step_late,
    "a block of another sequence": block_of_another,
    "tail not masked": tail_not_masked,
    "KV head = h % num_kv_heads": wrong_head_mapping,
    "accumulator not rescaled": accumulator_not_rescaled,
    "position + 1 at decode": position_plus_one,
    "full blocks permuted": full_blocks_permuted,
}


def plant(engine, name: str) -> None:
    """Plants a fault. Raises KeyError, which names those that exist, for an unknown one."""
    if name not in FAULTS:
        raise KeyError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
    FAULTS[name](engine)
