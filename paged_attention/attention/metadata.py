"""The metadata of a batch, and paged attention in PyTorch (lesson 05).

This attention is the reference for every later kernel.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paged_attention.attention.by_request import share_heads
from paged_attention.attention.softmax_state import NO_KEY
from paged_attention.pool.slots import slot_mapping
from paged_attention.validate import check_paged_attention, check_scheduled


@dataclass(frozen=True)
class BatchMetadata:
    """What a paged kernel is told about a batch.

    The batch may mix whole prompts, chunks of prompts and single new tokens.

    `cu_seqlens_q`: int32 (num_seqs + 1,); sequence s has the queries from cu_seqlens_q[s] up
        to, but not including, cu_seqlens_q[s + 1].
    `seq_lens_kv`: int32 (num_seqs,), each sequence's keys, including those of its queries.
    `block_table`: int32 (num_seqs, max_blocks_per_seq), -1 after a row's last block.
    `slot_mapping`: int64 (num_tokens,), where the keys and values of the batch's tokens are
        written.
    """

    cu_seqlens_q: Tensor
    seq_lens_kv: Tensor
    block_table: Tensor
    slot_mapping: Tensor


def cumulative_lengths(query_lens: list[int]) -> Tensor:
    """Says where each sequence's queries begin in the batch, and where the last one's end.

    query_lens: each sequence's number of queries.
    Returns int32 (num_seqs + 1,), beginning with 0.
    """
    # BEGIN SOLUTION 5.1
    return torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    # END SOLUTION


def build_metadata(manager, scheduled: list[tuple[int, int]]) -> BatchMetadata:
    """Builds the metadata of a batch.

    The tensors are on the manager's device, and the block table is a copy. The manager is not
    changed.

    manager: a PagedAttentionManager that has made room for the batch's tokens.
    scheduled: (seq_id, num_tokens) pairs. Each sequence computes its last num_tokens tokens.
    Raises ValueError for an empty batch or a sequence named twice.
    Raises ValueError for num_tokens below 1 or beyond the sequence's length.
    Raises UnknownSequenceError for an unknown sequence.
    """
    check_scheduled(scheduled, manager)
    # BEGIN SOLUTION 5.3
    device = manager.block_table.device
    sequences = [manager.get(seq_id) for seq_id, _ in scheduled]
    query_lens = [num_tokens for _, num_tokens in scheduled]
    block_table = manager.block_table[[sequence.row for sequence in sequences]]
    positions, tokens_in_row = [], block_table.shape[1] * manager.block_size
    for index, (sequence, q_len) in enumerate(zip(sequences, query_lens, strict=True)):
        end = index * tokens_in_row + sequence.length  # as if the table were one long row
        positions += range(end - q_len, end)
    kv_lens = [sequence.length for sequence in sequences]
    return BatchMetadata(
        cu_seqlens_q=cumulative_lengths(query_lens).to(device),
        seq_lens_kv=torch.tensor(kv_lens, dtype=torch.int32, device=device),
        block_table=block_table,
        slot_mapping=slot_mapping(
            block_table.flatten(), torch.tensor(positions, device=device), manager.block_size
        ),
    )
    # END SOLUTION


def visible_keys(q_len: int, kv_len: int) -> Tensor:
    """Says which query sees which key when a sequence's last q_len tokens are its queries.

    Query q sees the keys 0 … kv_len - q_len + q.
    Returns bool (q_len, kv_len), True where the query sees the key.
    """
    # BEGIN SOLUTION 5.4
    return torch.arange(kv_len) <= torch.arange(kv_len - q_len, kv_len)[:, None]
    # END SOLUTION


def attn_paged_torch(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, metadata: BatchMetadata
) -> Tensor:
    """Computes causal paged attention of a batch, sequence by sequence.

    For each sequence it gathers the blocks, then attends. Slots that hold none of the
    sequences' tokens are not read, and may hold NaN. The arguments are not changed.

    q: (num_tokens, num_q_heads, head_size).
    k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
    Returns the shape and dtype of q.
    Raises TypeError or ValueError naming the argument that does not fit.
    """
    check_paged_attention(q, k_cache, v_cache, metadata)
    # BEGIN SOLUTION 5.5
    block_size, outputs = k_cache.shape[1], []
    starts = metadata.cu_seqlens_q.tolist()
    kv_lens = metadata.seq_lens_kv.tolist()
    for s, kv_len in enumerate(kv_lens):
        # (num_q_heads, q_len, head_size)
        q_rows = q[starts[s] : starts[s + 1]].transpose(0, 1)
        block_ids = metadata.block_table[s, : -(-kv_len // block_size)]
        k_rows, v_rows = (
            share_heads(cache[block_ids].flatten(0, 1)[:kv_len], q.shape[1]).transpose(0, 1)
            for cache in (k_cache, v_cache)
        )  # (num_q_heads, kv_len, head_size)
        scores = q_rows @ k_rows.transpose(1, 2) / math.sqrt(q.shape[-1])
        hidden = ~visible_keys(q_rows.shape[1], kv_len).to(q.device)
        weights = torch.softmax(scores.masked_fill(hidden, NO_KEY), dim=-1)
        outputs.append((weights @ v_rows).transpose(0, 1))
    return torch.cat(outputs)
    # END SOLUTION


def each_query(metadata: BatchMetadata) -> tuple[Tensor, Tensor]:
    """Makes each query of a batch a sequence with a single query.

    A query sees the keys up to its own. So a chunk of a prompt is a batch of decodes, with
    contexts that grow by one.

    Returns block_table (num_tokens, max_blocks_per_seq) and context_lens (num_tokens,).
    """
    q_lens = metadata.cu_seqlens_q.diff().long()
    # (num_tokens,): how many keys the first query of its chunk sees
    first = (metadata.seq_lens_kv - q_lens + 1).repeat_interleave(q_lens)
    starts = metadata.cu_seqlens_q[:-1].repeat_interleave(q_lens)
    behind = torch.arange(len(first), device=first.device) - starts
    return metadata.block_table.repeat_interleave(q_lens, dim=0), (first + behind).int()
