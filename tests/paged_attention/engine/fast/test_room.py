"""A prompt gets its room block by block: the same room that single tokens would get."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manager_state import state_of
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.engine.fast.room import append_tokens
from paged_attention.kv_cache import PagedAttentionManager

FORK = 3  # a sequence that begins as sequence 0 does


def manager_with(num_blocks, block_size, lengths, forks):
    """Sequences of these lengths, and forks of the first one."""
    manager = PagedAttentionManager(num_blocks, block_size, 1, 2, 5, 12)
    manager.kv_cache.copy_(torch.arange(manager.kv_cache.numel()).view_as(manager.kv_cache))
    for seq_id, length in enumerate(lengths):
        if manager.blocks_for(length) <= manager.block_manager.get_num_free_blocks():
            manager.add_sequence(seq_id, length)
    for seq_id in range(FORK, FORK + forks):
        if 0 in manager.sequences:
            manager.fork_sequence(0, seq_id)
    return manager


def outcome(append, manager, scheduled):
    try:
        append(manager, scheduled)
    except Exception as error:
        return type(error)


@settings(max_examples=200)
@given(
    block_size=st.integers(1, 5),
    num_blocks=st.integers(1, 14),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    forks=st.integers(0, 2),
    # several sequences at once are one too many for it
    appended=st.lists(
        st.tuples(st.integers(0, 5), st.integers(-1, 40) | st.just(1.0)),
        min_size=1,
        max_size=6,
    ),
)
@example(3, 8, [3], 1, [(0, 1)])  # shared and full
@example(3, 8, [7], 1, [(0, 1), (0, 2)])  # its last block is its own after the first token
@example(3, 8, [2], 2, [(0, 2), (3, 1)])  # shared by three
@example(3, 14, [0], 0, [(0, 36), (0, 1)])  # the longest there may be, and one more
def test_it_is_the_room_that_single_tokens_get(
    block_size, num_blocks, lengths, forks, appended
):
    """The same blocks, rows, lengths and copies, or the same error, and then no change."""
    one, other = (manager_with(num_blocks, block_size, lengths, forks) for _ in range(2))
    for pair in appended:
        before = state_of(one)
        expected = outcome(PagedAttentionManager.append_tokens, one, [pair])
        assert outcome(append_tokens, other, [pair]) == expected
        assert state_of(one) == state_of(other)
        assert expected is None or state_of(other) == before


@pytest.mark.parametrize(
    "length, forks, num_tokens, needed",
    [(2, 0, 2, 1), (3, 0, 4, 2), (2, 1, 2, 2), (2, 1, 1, 1)],
)
def test_it_takes_the_last_free_block_and_says_how_many_it_lacks(
    length, forks, num_tokens, needed
):
    """A shared block needs a copy."""
    append_tokens(manager := manager_with(1 + needed, 3, [length], forks), [(0, num_tokens)])
    assert manager.block_manager.get_num_free_blocks() == 0
    words = f"sequence 0 needs {needed} blocks, and {needed - 1} are free"
    with pytest.raises(OutOfBlocksError, match=words):
        append_tokens(manager_with(needed, 3, [length], forks), [(0, num_tokens)])
