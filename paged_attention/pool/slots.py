"""The slots of the pool, and how keys and values are written into them (lesson 02).

A slot is the place of one token.
"""

from torch import Tensor

from paged_attention.validate import check_write


def slot_mapping(block_ids: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Computes the slots of some tokens of one sequence: block_id * block_size + offset.

    block_ids: int32 (max_blocks_per_seq,), the sequence's row of the block table.
    positions: int64 (num_tokens,), the tokens' places in the sequence, from 0, in any order.
    Returns int64 (num_tokens,).
    """
    # BEGIN SOLUTION 2.2
    return block_ids[positions // block_size].long() * block_size + positions % block_size
    # END SOLUTION


def write_kv(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Writes the keys and values of num_tokens tokens into their slots of the pool, in place.

    If an error is raised, nothing has been written.

    k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
    slots: int64 (num_tokens,), no two alike.
    k, v: (num_tokens, num_kv_heads, head_size), of the caches' dtype.
    Raises ValueError or TypeError for anything else.
    """
    check_write(k_cache, v_cache, slots, k, v)
    # BEGIN SOLUTION 2.3
    k_cache.view(-1, *k_cache.shape[2:])[slots] = k
    v_cache.view(-1, *v_cache.shape[2:])[slots] = v
    # END SOLUTION
