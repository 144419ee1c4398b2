"""Room for a prompt's tokens, a whole block at a time."""

from paged_attention.pool.block_manager import OutOfBlocksError
from paged_attention.validate import check_scheduled


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
