"""Room for a sequence's new tokens, without going token by token."""

from collections.abc import Hashable

import numpy as np

from paged_attention.pool.block_manager import OutOfBlocksError
from paged_attention.validate import check_scheduled


def append_to_own_block(
    manager, entries: np.ndarray, seq_id: Hashable, num_tokens: int
) -> bool:
    """Makes room for tokens in a sequence's last block, if they fit and no other uses it.

    Most decodes need no more than this.

    entries: the block table's, int32 (max_num_seqs, max_blocks_per_seq).
    num_tokens: 1 or more.
    Returns whether it did. If not, nothing has changed.
    """
    sequence, block_size = manager.sequences[seq_id], manager.block_size
    index, offset = divmod(sequence.length, block_size)
    if offset == 0 or offset + num_tokens > block_size:
        return False
    if manager.block_manager.get_ref_count(entries.item(sequence.row, index)) > 1:
        return False
    sequence.length += num_tokens
    return True


def append_tokens(manager, scheduled: list[tuple[int, int]]) -> None:
    """Does what PagedAttentionManager.append_tokens does, for one sequence.

    That one goes token by token. For a prompt, this takes longer than the model.

    scheduled: (seq_id, num_tokens) of one sequence.
    Raises the errors of PagedAttentionManager.append_tokens. Then nothing has changed.
    """
    check_scheduled(scheduled)
    ((seq_id, num_tokens),) = scheduled
    sequence, pool = manager.get(seq_id), manager.block_manager
    first = manager.blocks_for(sequence.length)
    needed = manager.blocks_for(sequence.length + num_tokens) - first
    is_full = sequence.length % manager.block_size == 0
    is_shared = not is_full and pool.get_ref_count(manager.blocks_of(seq_id)[-1]) > 1
    if needed + is_shared > pool.get_num_free_blocks():
        raise OutOfBlocksError(
            f"sequence {seq_id} needs {needed + is_shared} blocks, "
            f"and {pool.get_num_free_blocks()} are free"
        )
    if is_shared:
        manager.append_token(seq_id)  # into a copy of the block
        num_tokens -= 1
    if needed:
        manager.table.write(sequence.row, first, [pool.allocate() for _ in range(needed)])
    sequence.length += num_tokens
