"""Block managers in Python, for exercises that are given one."""

from lessons_content.lesson_01.native import METHODS
from paged_attention.pool.block_manager import PythonBlockManager


class BlockManager:
    """The five methods of a block manager and no more, as the compiled one has them."""

    def __init__(self, inner):
        for name in METHODS:
            setattr(self, name, getattr(inner, name))

    def __repr__(self):
        return "the manager"


def manager_of(num_blocks, blocks, further_users, last_first=False):
    """A manager of which `blocks` are in use, and the others were freed in their order."""
    manager = BlockManager(PythonBlockManager(num_blocks))
    for _ in range(num_blocks):
        manager.allocate()
    for block_id in sorted(set(range(num_blocks)) - set(blocks), reverse=last_first):
        manager.free(block_id)
    for block_id in further_users:
        manager.increase_ref_count(block_id)
    return manager


def counts_of(manager, num_blocks):
    return [manager.get_ref_count(block_id) for block_id in range(num_blocks)]
