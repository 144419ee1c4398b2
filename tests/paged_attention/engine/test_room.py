"""A prompt gets its room block by block: the same room that single tokens would get."""

import operator

import pytest
import torch

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.engine.fast.room import append_tokens
from paged_attention.kv_cache import (
    PagedAttentionManager,
    SequenceTooLongError,
    UnknownSequenceError,
)

BLOCK_SIZE, MOST_BLOCKS = 3, 4  # of a sequence
told = operator.methodcaller  # what a manager is told before


def add(length):
    return told("add_sequence", 0, length)


FORK, FORK_TWICE = (told("fork_sequence", 0, child) for child in (1, 2))
OWN_LAST_BLOCK = told("append_token", 0)
STARTS = {
    "empty": [add(0)],
    "in its first block": [add(1)],
    "a full block": [add(3)],
    "in its second block": [add(5)],
    "full blocks": [add(6)],
    "shared in its first block": [add(2), FORK],
    "shared by three": [add(4), FORK, FORK_TWICE],
    "shared and full": [add(3), FORK],
    "shared but for its last block": [add(7), FORK, OWN_LAST_BLOCK],
    "shared and full but for its last block": [add(6), FORK, OWN_LAST_BLOCK],
}


def managers(start, num_blocks):
    """Two that are alike."""
    made = []
    for _ in range(2):
        manager = PagedAttentionManager(num_blocks, BLOCK_SIZE, 1, 2, 4, MOST_BLOCKS)
        places = torch.arange(manager.kv_cache.numel())
        manager.kv_cache.copy_(places.view_as(manager.kv_cache))
        for action in start:
            action(manager)
        made.append(manager)
    return made


def state(manager):
    """All that a manager knows."""
    return (
        {seq_id: (own.row, own.length) for seq_id, own in manager.sequences.items()},
        manager.block_table.tolist(),
        list(manager.block_manager.ref_counts),
        manager.block_manager.get_num_free_blocks(),
        manager.kv_cache.tolist(),
    )


@pytest.mark.parametrize("num_tokens", range(1, 7))
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_it_is_the_room_that_single_tokens_get(start, num_tokens):
    one, other = managers(start, num_blocks=8)
    if one.get(0).length + num_tokens > BLOCK_SIZE * MOST_BLOCKS:
        with pytest.raises(SequenceTooLongError):
            append_tokens(other, [(0, num_tokens)])
    else:
        one.append_tokens([(0, num_tokens)])
        append_tokens(other, [(0, num_tokens)])
    assert state(one) == state(other)


@pytest.mark.parametrize(
    "start, num_tokens, needed",
    [
        ([add(2)], 1, 0),
        ([add(2)], 2, 1),
        ([add(3)], 4, 2),
        ([add(2), FORK], 1, 1),  # the copy
        ([add(2), FORK], 2, 2),
        ([add(3), FORK], 1, 1),
        ([add(7), FORK, OWN_LAST_BLOCK], 1, 0),  # no copy: only blocks before it are shared
        ([add(7), FORK, OWN_LAST_BLOCK], 2, 1),
    ],
)
def test_it_takes_the_last_free_block_and_none_that_is_not_there(start, num_tokens, needed):
    used = managers(start, 8)[0].block_manager
    num_used = 8 - used.get_num_free_blocks()
    _, manager = managers(start, num_used + needed)
    append_tokens(manager, [(0, num_tokens)])
    assert manager.block_manager.get_num_free_blocks() == 0
    if needed:
        before, manager = managers(start, num_used + needed - 1)
        words = f"sequence 0 needs {needed} blocks, and {needed - 1} are free"
        with pytest.raises(OutOfBlocksError, match=words):
            append_tokens(manager, [(0, num_tokens)])
        assert state(before) == state(manager)


@pytest.mark.parametrize(
    "scheduled, error",
    [
        ([(0, 0)], ValueError),
        ([(0, -1)], ValueError),
        ([(9, 1)], UnknownSequenceError),
        ([], ValueError),
        ([(0, 1.0)], TypeError),
    ],
)
def test_what_is_refused_changes_nothing(scheduled, error):
    before, manager = managers([add(2)], 8)
    with pytest.raises(error):
        append_tokens(manager, scheduled)
    assert state(before) == state(manager)
