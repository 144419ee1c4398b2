"""The manager of lesson 02 against a model made of dictionaries, and what it refuses."""

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from examples import few
from manager_state import state_of
from paged_attention.engine.fast import reserve_blocks
from paged_attention.pool.block_manager import OutOfBlocksError
from paged_attention.pool.kv_cache import (
    OutOfRowsError,
    PagedAttentionManager,
    SequenceTooLongError,
)
from paged_attention.pool.slots import slot_mapping, write_kv
from state_machines import steps

ERRORS = OutOfBlocksError, OutOfRowsError, SequenceTooLongError
PICK = st.integers(0, 10)  # which of the ids that are possible


class ManagerAgainstDictionaries(RuleBasedStateMachine):
    """`tokens` is all that the model knows: for each sequence the number that was written for
    each of its tokens.

    From it follow the blocks that are needed and each error. What the pool holds must always
    read back as the model's.
    """

    @initialize(
        num_blocks=st.sampled_from([12, 7, 4, 1]),
        block_size=st.integers(1, 4),
        rows=st.sampled_from([5, 3, 2]),
        entries=st.sampled_from([5, 3, 1]),
    )
    def start(self, num_blocks, block_size, rows, entries):
        self.manager = PagedAttentionManager(
            num_blocks, block_size, 1, 2, rows, entries, num_layers=2
        )
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.rows = rows
        self.entries = entries
        self.tokens, self.written = {}, 0

    def blocks_for(self, num_tokens):
        return -(-num_tokens // self.block_size)

    def attempt(self, expected, call):
        """`call` raises `expected` and changes nothing, or raises nothing."""
        before = state_of(self.manager)
        try:
            result = call()
        except ERRORS as error:
            assert type(error) is expected, f"{type(error).__name__} instead of {expected}"
            assert state_of(self.manager) == before
            return None
        assert expected is None
        return (result,)

    def write(self, seq_id, start, count):
        """New numbers for tokens start … start + count - 1, in the manager's pool and in the
        model.
        """
        numbers = [float(self.written + index + 1) for index in range(count)]
        self.written += count
        slots = slot_mapping(
            self.manager.get_block_table_for_seq(seq_id),
            torch.arange(start, start + count),
            self.block_size,
        )
        for layer, (k_cache, v_cache) in enumerate(self.manager.kv_cache):
            rows = torch.tensor(numbers).view(-1, 1, 1).expand(-1, 1, 2) * (layer + 1)
            write_kv(k_cache, v_cache, slots, rows, -rows)
        self.tokens[seq_id] = self.tokens[seq_id][:start] + numbers

    def known(self, pick) -> int:
        return sorted(self.tokens)[pick % len(self.tokens)]

    def unknown(self, pick) -> int:
        return [seq_id for seq_id in range(10) if seq_id not in self.tokens][pick % 5]

    def free_blocks(self):
        return self.manager.block_manager.get_num_free_blocks()

    @rule(pick=PICK, num_tokens=st.integers(0, 14))
    def add(self, pick, num_tokens):
        seq_id = self.unknown(pick)
        needed = self.blocks_for(num_tokens)
        expected = None
        if len(self.tokens) == self.rows:
            expected = OutOfRowsError
        elif needed > self.entries:
            expected = SequenceTooLongError
        elif needed > self.free_blocks():
            expected = OutOfBlocksError
        if self.attempt(expected, lambda: self.manager.add_sequence(seq_id, num_tokens)):
            self.tokens[seq_id] = []
            self.write(seq_id, 0, num_tokens)

    def append_error(self, seq_id):
        length = len(self.tokens[seq_id])
        if self.blocks_for(length + 1) > self.entries:
            return SequenceTooLongError
        if length % self.block_size == 0:
            return None if self.free_blocks() else OutOfBlocksError
        shared = (
            self.manager.block_manager.get_ref_count(self.manager.blocks_of(seq_id)[-1]) > 1
        )
        return OutOfBlocksError if shared and not self.free_blocks() else None

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK)
    def append(self, pick):
        seq_id = self.known(pick)
        done = self.attempt(
            self.append_error(seq_id), lambda: self.manager.append_token(seq_id)
        )
        if done:
            position = len(self.tokens[seq_id])
            expected = (
                self.manager.blocks_of(seq_id)[position // self.block_size] * self.block_size
            )
            assert done[0] == expected + position % self.block_size
            self.write(seq_id, position, 1)

    @precondition(lambda self: self.tokens)
    @rule(picks=st.lists(st.tuples(PICK, st.integers(1, 5)), min_size=1, max_size=4))
    def append_a_batch(self, picks):
        """test_room_for_all_or_for_none says whether it fits."""
        batch = list({self.known(pick): num_tokens for pick, num_tokens in picks}.items())
        before = state_of(self.manager)
        try:
            self.manager.append_tokens(batch)
        except ERRORS:
            assert state_of(self.manager) == before
            return
        for seq_id, num_tokens in batch:
            self.write(seq_id, len(self.tokens[seq_id]), num_tokens)

    @precondition(lambda self: self.tokens)
    @rule(parent=PICK, child=PICK)
    def fork(self, parent, child):
        seq_id, child_id = self.known(parent), self.unknown(child)
        expected = OutOfRowsError if len(self.tokens) == self.rows else None
        free = self.free_blocks()
        if self.attempt(expected, lambda: self.manager.fork_sequence(seq_id, child_id)):
            self.tokens[child_id] = list(self.tokens[seq_id])
            assert self.free_blocks() == free

    @precondition(lambda self: self.tokens)
    @rule(pick=PICK)
    def free(self, pick):
        seq_id = self.known(pick)
        self.attempt(None, lambda: self.manager.free_sequence(seq_id))
        del self.tokens[seq_id]

    @invariant()
    def every_token_reads_back(self):
        """Nobody's writes ever reached another sequence, in any layer."""
        for seq_id, numbers in self.tokens.items():
            blocks = self.manager.blocks_of(seq_id)
            for layer, (k_cache, v_cache) in enumerate(self.manager.kv_cache):
                expected = [number * (layer + 1) for number in numbers]
                assert k_cache[blocks].flatten(0, 1)[: len(numbers), 0, 0].tolist() == expected
                assert v_cache[blocks].flatten(0, 1)[: len(numbers), 0, 1].tolist() == [
                    -number for number in expected
                ]

    @invariant()
    def tables_and_counts_agree(self):
        manager = self.manager
        assert torch.equal(manager.table.cpu, manager.table.on_device)
        used = [sequence.row for sequence in manager.sequences.values()]
        assert sorted(used + manager.table.free_rows) == list(range(self.rows))
        users = [0] * self.num_blocks
        for seq_id, numbers in self.tokens.items():
            row = manager.get_block_table_for_seq(seq_id).tolist()
            held = self.blocks_for(len(numbers))
            assert min(row[:held], default=0) >= 0
            assert row[held:] == [-1] * (self.entries - held)
            for block_id in row[:held]:
                users[block_id] += 1
        counts = map(manager.block_manager.get_ref_count, range(self.num_blocks))
        assert users == list(counts)
        for row in manager.table.free_rows:
            assert manager.table.cpu[row].tolist() == [-1] * self.entries


TestManager = ManagerAgainstDictionaries.TestCase
TestManager.settings = steps(20)


def append_in_place_or_elsewhere(manager, batch):
    """As the scheduler of a host that is a step ahead does it."""
    entries = manager.table.cpu.numpy()
    if not reserve_blocks.append_to_own_block(manager, entries, *batch[0]):
        reserve_blocks.append_tokens(manager, batch)


@few(100, drawn_anew=300)
@given(
    num_spare=st.integers(0, 4),
    block_size=st.integers(1, 4),
    row=st.integers(2, 5),
    prompts=st.lists(st.integers(0, 7), min_size=1, max_size=2),
    forks=st.lists(st.integers(0, 1), max_size=3),
    num_new=st.lists(st.integers(0, 9), min_size=5, max_size=5),
)
@pytest.mark.parametrize(
    "append",
    [
        PagedAttentionManager.append_tokens,
        reserve_blocks.append_tokens,
        append_in_place_or_elsewhere,
    ],
)
def test_room_for_all_or_for_none(append, num_spare, block_size, row, prompts, forks, num_new):
    """Trying it token by token on a copy says whether a batch fits, and what it gets."""
    num_blocks = sum(-(-num_tokens // block_size) for num_tokens in prompts) + num_spare
    assume(max(prompts) <= row * block_size)
    manager = PagedAttentionManager(max(num_blocks, 1), block_size, 1, 1, 8, row)
    manager.kv_cache.copy_(torch.arange(manager.kv_cache.numel()).view_as(manager.kv_cache))
    for seq_id, num_tokens in enumerate(prompts):
        manager.add_sequence(seq_id, num_tokens)
    for parent in forks:
        manager.fork_sequence(parent % len(prompts), len(manager.sequences))
    batch = [pair for pair in zip(manager.sequences, num_new) if pair[1]]
    if append is not PagedAttentionManager.append_tokens:  # one prompt at a time
        batch = batch[:1]
    assume(batch)
    before, expected = state_of(manager), copy.deepcopy(manager)
    try:
        for seq_id, num_tokens in batch:
            for _ in range(num_tokens):
                expected.append_token(seq_id)
    except (OutOfBlocksError, SequenceTooLongError):
        with pytest.raises((OutOfBlocksError, SequenceTooLongError)):
            append(manager, batch)
        assert state_of(manager) == before
    else:
        append(manager, batch)
        assert state_of(manager) == state_of(expected)


def test_the_pool_has_one_layer_of_float32_on_the_cpu_unless_it_is_told_otherwise():
    pool = PagedAttentionManager(2, 3, 4, 5, 1, 2).kv_cache
    assert pool.shape == (1, 2, 2, 3, 4, 5) and not pool.any()
    assert (pool.dtype, pool.device.type) == (torch.float32, "cpu")
    other = dict(num_layers=3, dtype=torch.bfloat16, device="meta")
    manager = PagedAttentionManager(2, 3, 4, 5, 1, 2, **other)
    assert (len(manager.kv_cache), manager.kv_cache.dtype) == (3, torch.bfloat16)
    assert manager.kv_cache.is_meta and manager.block_table.is_meta
