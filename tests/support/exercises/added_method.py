"""A cell that adds methods of the learner's own to the notebook's class, and an answer to
exercise 2.7 that calls them.
"""

CELL = """
from paged_attention.pool.kv_cache import Bookkeeping

class PagedAttentionManager(Bookkeeping):
    pass

def give_back_all(self, blocks):
    for block_id in blocks:
        self.give_back(block_id)

def give_back(self, block_id):
    self.block_manager.free(block_id)

def free_sequence(self, seq_id):
    self.give_back_all(self.blocks_of(seq_id))
    self.table.clear(self.sequences.pop(seq_id).row)

for method in (give_back_all, give_back, free_sequence):
    setattr(PagedAttentionManager, method.__name__, method)
"""
