"""Managers with a past, whose tokens can be told apart by what the pool holds."""

import torch

from lessons_content.exercises.kit import counted
from lessons_content.exercises.pools import lengths_of, users_of
from paged_attention.pool.kv_cache import PagedAttentionManager

UNWRITTEN = -7.0  # what the pool holds before anything is written


def make_manager(append_tokens, num_blocks, block_size, row, past):
    """A manager with this method and this past; each token's place holds its own number."""
    kind = type(
        "PagedAttentionManager", (PagedAttentionManager,), {"append_tokens": append_tokens}
    )
    manager = kind(num_blocks, block_size, 1, 1, 8, row)
    manager.kv_cache.fill_(UNWRITTEN)
    for name, second in past:
        if isinstance(second, str):
            manager.fork_sequence(name, second)
            continue
        if name not in manager.sequences:
            manager.add_sequence(name, 0)
        length = manager.get(name).length
        for _ in range(second):
            manager.append_token(name)
        write(manager, name, start=length)
    return manager


def places(manager, name):
    """The blocks and the offsets of a sequence's tokens."""
    positions = torch.arange(manager.get(name).length)
    blocks = torch.tensor(manager.blocks_of(name), dtype=torch.int64)
    return blocks[positions // manager.block_size], positions % manager.block_size


def write(manager, name, start):
    """Fills a sequence's places from `start` on, and returns what they hold now."""
    blocks, offsets = places(manager, name)
    numbers = 1_000.0 * ord(name) + torch.arange(len(offsets))[start:]
    manager.kv_cache[0, 0, blocks[start:], offsets[start:], 0, 0] = numbers
    return numbers.tolist()


def read(manager):
    """What each sequence's places hold."""
    cache = manager.kv_cache[0, 0, :, :, 0, 0]
    return {name: cache[places(manager, name)].tolist() for name in manager.sequences}


def books(manager):
    """Everything that must not change when the call fails."""
    tables = manager.table.cpu, manager.block_table
    return users_of(manager, range(manager.kv_cache.shape[2])), {
        name: (sequence.length, *(table[sequence.row].tolist() for table in tables))
        for name, sequence in manager.sequences.items()
    }


def state(manager):
    """How many tokens, blocks and users there are, in words."""
    parts = []
    for name, length in sorted(lengths_of(manager).items()):
        users = users_of(manager, manager.blocks_of(name))
        tokens, blocks = counted(length, "token"), counted(len(users), "block")
        parts.append(f"{name} has {tokens} in {blocks} with {users} users; ")
    num_free = manager.block_manager.get_num_free_blocks()
    return f"{''.join(parts)}{counted(num_free, 'block')} free"
