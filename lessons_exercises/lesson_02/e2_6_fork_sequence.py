"""Exercise 2.6: fork a sequence."""

import functools

from lessons_exercises.lesson_02 import managers
from lessons_exercises.lesson_02.managers import SMALL
from lessons_lib.checks import Exercise, Mistake
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import PagedAttentionManager, Sequence

fork_sequence = PagedAttentionManager.fork_sequence


def counts_forgotten(self, seq_id, child_id):
    blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
    self.check_new(child_id)
    self.start(child_id, length, blocks)


def counts_first(self, seq_id, child_id):
    for block_id in self.blocks_of(seq_id):
        self.block_manager.increase_ref_count(block_id)
    self.check_new(child_id)
    self.start(child_id, self.get(seq_id).length, self.blocks_of(seq_id))


def shares_the_row(self, seq_id, child_id):
    self.get(seq_id)
    self.check_new(child_id)
    for block_id in self.blocks_of(seq_id):
        self.block_manager.increase_ref_count(block_id)
    self.sequences[child_id] = Sequence(self.get(seq_id).row, self.get(seq_id).length)


def length_zero(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.sequences[child_id].length = 0


def length_in_blocks(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.sequences[child_id].length = len(self.blocks_of(seq_id)) * self.block_size


def last_block_left_out(self, seq_id, child_id):
    blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
    self.check_new(child_id)
    for block_id in blocks[:-1]:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, length, blocks[:-1])


def copies(self, seq_id, child_id):
    length, blocks = self.get(seq_id).length, self.blocks_of(seq_id)
    self.add_sequence(child_id, length)
    for old, new in zip(blocks, self.blocks_of(child_id), strict=True):
        self.kv_cache[:, :, new] = self.kv_cache[:, :, old]


def copies_last_block(self, seq_id, child_id):
    self.check_new(child_id)
    blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
    if length % self.block_size:
        last = self.block_manager.allocate()
        self.kv_cache[:, :, last] = self.kv_cache[:, :, blocks[-1]]
        blocks, shared = [*blocks[:-1], last], blocks[:-1]
    else:
        shared = blocks
    for block_id in shared:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, length, blocks)


def new_blocks_only(self, seq_id, child_id):
    self.add_sequence(child_id, self.get(seq_id).length)


def unchecked(self, seq_id, child_id):
    blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
    for block_id in blocks:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, length, blocks)


def duplicate_unnoticed(self, seq_id, child_id):
    self.get(seq_id)
    if child_id in self.sequences and self.table.free_rows:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        for block_id in blocks:
            self.block_manager.increase_ref_count(block_id)
        return self.start(child_id, length, blocks)
    return fork_sequence(self, seq_id, child_id)


def counts_the_whole_row(self, seq_id, child_id):
    self.get(seq_id)
    self.check_new(child_id)
    row = self.table.cpu[self.get(seq_id).row].tolist()
    for block_id in row:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, self.get(seq_id).length, row)


def copies_unasked(self, seq_id, child_id):
    """As `copies`, but nobody looks whether there are enough blocks."""
    self.check_new(child_id)
    blocks = self.blocks_of(seq_id)
    new = [self.block_manager.allocate() for _ in blocks]
    for old, copy_id in zip(blocks, new, strict=True):
        self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, old]
    self.start(child_id, self.get(seq_id).length, new)


def copies_last_block_always(self, seq_id, child_id):
    self.check_new(child_id)
    blocks = self.blocks_of(seq_id)
    for block_id in blocks[:-1]:
        self.block_manager.increase_ref_count(block_id)
    if blocks:
        last = self.block_manager.allocate()
        self.kv_cache[:, :, last] = self.kv_cache[:, :, blocks[-1]]
        blocks = [*blocks[:-1], last]
    self.start(child_id, self.get(seq_id).length, blocks)


def full_blocks_only(self, seq_id, child_id):
    self.check_new(child_id)
    full = self.get(seq_id).length // self.block_size
    blocks = self.blocks_of(seq_id)[:full]
    for block_id in blocks:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, full * self.block_size, blocks)


def counting(chosen):
    """The right method, but only the blocks in chosen(blocks) have one user more."""

    def wrong(self, seq_id, child_id):
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        self.check_new(child_id)
        for block_id in chosen(blocks):
            self.block_manager.increase_ref_count(block_id)
        self.start(child_id, length, blocks)

    return wrong


def counting_more(chosen):
    """The right method, but the blocks in chosen(manager) have one user more."""

    def wrong(self, seq_id, child_id):
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        self.check_new(child_id)
        for block_id in chosen(self):
            self.block_manager.increase_ref_count(block_id)
        self.start(child_id, length, blocks)

    return wrong


def used_blocks(self):
    return [
        block_id
        for block_id in range(self.kv_cache.shape[2])
        if self.block_manager.get_ref_count(block_id)
    ]


def blocks_of_all(self):
    return [block_id for seq_id in self.sequences for block_id in self.blocks_of(seq_id)]


def length_is_number_of_blocks(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.sequences[child_id].length = len(self.blocks_of(seq_id))


def parent_checked(self, seq_id, child_id):
    self.check_new(seq_id)
    fork_sequence(self, seq_id, child_id)


def changed_places(self, seq_id, child_id):
    fork_sequence(self, child_id, seq_id)


def needs_free_blocks(error):
    def wrong(self, seq_id, child_id):
        blocks = self.blocks_of(seq_id)
        self.check_new(child_id)
        if len(blocks) > self.block_manager.get_num_free_blocks():
            raise error
        fork_sequence(self, seq_id, child_id)

    return wrong


def key_error(self, seq_id, child_id):
    if seq_id not in self.sequences:
        raise KeyError(seq_id)
    fork_sequence(self, seq_id, child_id)


def device_forgotten(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.table.on_device[self.sequences[child_id].row] = -1


def cpu_forgotten(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.table.cpu[self.sequences[child_id].row] = -1


def own_blocks_lost(self, seq_id, child_id):
    """Starts the child with blocks of its own, and writes the parent's over them."""
    blocks = self.blocks_of(seq_id)
    self.add_sequence(child_id, self.get(seq_id).length)
    for block_id in blocks:
        self.block_manager.increase_ref_count(block_id)
    self.table.write(self.sequences[child_id].row, 0, blocks)


def in_row(row_of):
    """The right method, but the child's row is row_of(manager, child_id).

    It stays in the list of the free ones.
    """

    def wrong(self, seq_id, child_id):
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        self.check_new(child_id)
        for block_id in blocks:
            self.block_manager.increase_ref_count(block_id)
        row = row_of(self, child_id)
        self.sequences[child_id] = Sequence(row, length)
        self.table.write(row, 0, blocks)

    return wrong


def parents_sequence(self, seq_id, child_id):
    """A row is taken for the child, and is not its row.

    The child gets the parent's entry in `sequences`.
    """
    fork_sequence(self, seq_id, child_id)
    self.sequences[child_id] = self.sequences[seq_id]


def checked_after_start(counted_first=True, listed=True):
    def wrong(self, seq_id, child_id):
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        for block_id in blocks if counted_first else []:
            self.block_manager.increase_ref_count(block_id)
        self.start(child_id, length, blocks if listed else [])
        self.check_new(child_id)  # always raises

    return wrong


def parent_freed(self, seq_id, child_id):
    fork_sequence(self, seq_id, child_id)
    self.free_sequence(seq_id)


def duplicate_ignored(self, seq_id, child_id):
    if child_id not in self.sequences:
        fork_sequence(self, seq_id, child_id)


def block_zero_left_out(self, seq_id, child_id):
    length = self.get(seq_id).length
    self.check_new(child_id)
    blocks = [block_id for block_id in self.blocks_of(seq_id) if block_id > 0]
    for block_id in blocks:
        self.block_manager.increase_ref_count(block_id)
    self.start(child_id, length, blocks)


ADD, FORK = "add_sequence", "fork_sequence"
ROOMY = {"num_blocks": 12, "block_size": 3, "max_num_seqs": 4, "max_blocks_per_seq": 6}
CASES = [
    (SMALL, [(ADD, 0, 0)], [(0, 1)]),
    (SMALL, [(ADD, 0, 1)], [(0, 1)]),
    (SMALL, [(ADD, 0, 2)], [(0, 1)]),
    (SMALL, [(ADD, 0, 3)], [(0, 1)]),
    (SMALL, [(ADD, 4, 5)], [(4, 9), (9, 1)]),
    (SMALL, [], [(0, 1)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 3)], [(1, 2)]),
    (SMALL, [(ADD, 0, 3)], [(0, 0)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 1)], [(0, 1), (1, 0)]),
    (SMALL, [(ADD, 0, 3), (ADD, 1, 1), (ADD, 2, 1)], [(0, 3)]),
    (SMALL, [(ADD, 0, 6), (ADD, 1, 2)], [(0, 2), (0, 3)]),
    (ROOMY, [(ADD, 0, 5)], [(0, 1), (1, 2)]),
    (SMALL, [(ADD, 0, 6), ("free_sequence", 0), (ADD, 1, 5)], [(1, 0), (0, 2)]),
]

EXERCISE = Exercise(
    id="2.6",
    title="fork a sequence and its row",
    answer_name="fork_sequence",
    reference=fork_sequence,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "fork_sequence"),
    hidden=functools.partial(managers.hidden, "fork_sequence"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "fork_sequence"),
    describe=functools.partial(managers.describe, "fork_sequence"),
    show=managers.show,
    mistakes=(
        Mistake(
            "counts-not-increased",
            "The child's row names the parent's blocks, and the counts do not know of it. "
            "When one of the two ends, the other's blocks become free under it.",
            counts_forgotten,
        ),
        Mistake(
            "half-done-fork",
            "The fork failed, and the counts had been increased already: "
            "those blocks will never be free again. Do first what can fail.",
            counts_first,
        ),
        Mistake(
            "shares-the-row",
            "Both sequences have the same row. The next token of one would change the table "
            "of the other: the child needs a row of its own with the same entries.",
            shares_the_row,
            also=(parents_sequence,),
        ),
        Mistake(
            "length-not-copied",
            "The child starts with length 0, as if it had no tokens. "
            "It has all of the parent's.",
            length_zero,
        ),
        Mistake(
            "length-in-whole-blocks",
            "The child's length is that of the blocks. The last one may be partly filled.",
            length_in_blocks,
        ),
        Mistake(
            "length-in-blocks",
            "The child's length is the number of its blocks. "
            "It is the number of its tokens, as many as the parent has.",
            length_is_number_of_blocks,
        ),
        Mistake(
            "last-block-left-out",
            "The last block is missing in the child. "
            "It is shared like the others; who writes into it first makes the copy.",
            last_block_left_out,
            also=(full_blocks_only,),
        ),
        Mistake(
            "copies-blocks",
            "The child has new blocks of its own. A fork shares the parent's: "
            "nothing is taken from the pool, and nothing is copied.",
            copies,
            also=(new_blocks_only, copies_unasked),
        ),
        Mistake(
            "copies-last-block",
            "You copy the last block at once. "
            "Perhaps nobody will write into it: whoever does so first makes the copy.",
            copies_last_block,
            also=(copies_last_block_always,),
        ),
        Mistake(
            "child-unchecked",
            "Nothing looks whether the child's id is free and whether there is a row for it: "
            "`check_new` does.",
            unchecked,
        ),
        Mistake(
            "duplicate-unnoticed",
            "The child's id was taken, and that sequence is lost: "
            "its blocks belong to nobody now.",
            duplicate_unnoticed,
        ),
        Mistake(
            "duplicate-ignored",
            "The child's id is taken, and no error says so. `check_new` raises it.",
            duplicate_ignored,
        ),
        Mistake(
            "checked-after-start",
            "`check_new` comes after `start`, "
            "so it finds the child that you have just entered. Look first.",
            checked_after_start(),
            also=(
                checked_after_start(counted_first=False),
                checked_after_start(counted_first=False, listed=False),
            ),
        ),
        Mistake(
            "parent-freed",
            "The parent has ended. A fork adds a sequence, and both go on.",
            parent_freed,
        ),
        Mistake(
            "counts-the-whole-row",
            "You went through the whole row, the -1 behind the last block included. "
            "`blocks_of` gives the blocks only.",
            counts_the_whole_row,
        ),
        Mistake(
            "positions-for-ids",
            "You counted up the positions 0, 1, 2, … of the parent's blocks. "
            "The ids are what stands at those positions.",
            counting(lambda blocks: range(len(blocks))),
        ),
        Mistake(
            "block-zero-forgotten",
            "Block 0 has no user more. "
            "It is a block like the others; an entry without a block is -1.",
            counting(lambda blocks: [block_id for block_id in blocks if block_id]),
            also=(block_zero_left_out,),
        ),
        Mistake(
            "not-every-block-counted",
            "Only some of the blocks have one user more. The child uses all of them.",
            counting(lambda blocks: blocks[-1:]),
            also=(counting(lambda blocks: blocks[:1]), counting(lambda blocks: blocks[:-1])),
        ),
        Mistake(
            "other-blocks-counted",
            "Blocks that the parent does not use have one user more as well. "
            "The child uses the parent's blocks only.",
            counting_more(used_blocks),
            also=(counting_more(blocks_of_all),),
        ),
        Mistake(
            "counts-twice",
            "Each block has two users more. One fork adds one sequence.",
            counting(lambda blocks: [*blocks, *blocks]),
        ),
        Mistake(
            "parent-and-child-swapped",
            "The parent and the child have changed places: the new id is child_id, "
            "and it is the one for `check_new`.",
            parent_checked,
            also=(changed_places,),
        ),
        Mistake(
            "free-blocks-asked-for",
            "You refuse a fork because few blocks are free. A fork takes none.",
            needs_free_blocks(MemoryError),
            also=(needs_free_blocks(OutOfBlocksError),),
        ),
        Mistake(
            "key-error",
            "There is no such sequence, and the error is Python's KeyError. "
            "`get` and `blocks_of` raise the one of the table above.",
            key_error,
        ),
        Mistake(
            "own-blocks-lost",
            "The child took blocks of its own first, and the parent's were written over "
            "them: nobody knows those blocks any more. A fork takes none.",
            own_blocks_lost,
        ),
        Mistake(
            "id-for-row",
            "You use the child's id as its row. "
            "An id may be any number; which row is free, `table.free_rows` knows.",
            in_row(lambda self, child_id: child_id),
        ),
        Mistake(
            "row-left-in-the-list",
            "The child has a row that is in `free_rows` still, so the next sequence gets "
            "the same. Whoever takes a row removes it from there; `start` does.",
            in_row(lambda self, child_id: self.table.free_rows[-1]),
        ),
        Mistake(
            "cpu-table-forgotten",
            "The child's row is filled in the device's table only, "
            "and the manager reads the CPU's. `start` and `table.write` fill both.",
            cpu_forgotten,
        ),
        Mistake(
            "device-table-forgotten",
            "The child's row is filled in the CPU's table only. "
            "`start` and `table.write` fill both.",
            device_forgotten,
        ),
    ),
    hints=(
        (
            "What does exercise 1.5 do with the block manager? "
            "And what is new here: the table's row, and the length."
        ),
        (
            "Two lookups can fail: the parent's id and the child's, in either order. "
            "Both come before the first count is increased."
        ),
        "`start` writes a list of blocks into a free row.",
    ),
)
