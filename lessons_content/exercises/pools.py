"""Managers of lesson 02, as checks make them and look at them."""


def make_free(manager, block_ids):
    """Gives a new manager's free blocks this order: it hands out the last one first."""
    for _ in block_ids:
        manager.block_manager.allocate()
    for block_id in block_ids:
        manager.block_manager.free(block_id)


def lengths_of(manager) -> dict:
    return {seq_id: sequence.length for seq_id, sequence in manager.sequences.items()}


def users_of(manager, block_ids) -> list[int]:
    """How many sequences use each of these blocks."""
    return [*map(manager.block_manager.get_ref_count, block_ids)]
