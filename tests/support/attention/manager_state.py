"""All of a manager's state that a failed call could have changed."""

import torch


def state_of(manager):
    """Two states are equal if every number is, NaN included."""
    counts = [
        manager.block_manager.get_ref_count(block_id)
        for block_id in range(manager.kv_cache.shape[2])
    ]
    return (
        manager.kv_cache.view(torch.int32).tolist(),
        manager.table.cpu.tolist(),
        manager.table.on_device.tolist(),
        list(manager.table.free_rows),
        counts,
        list(manager.block_manager.free_blocks),
        {
            seq_id: (sequence.row, sequence.length)
            for seq_id, sequence in manager.sequences.items()
        },
    )
