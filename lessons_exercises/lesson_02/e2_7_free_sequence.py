"""Exercise 2.7: free a sequence."""

import functools

from lessons_exercises.lesson_02 import managers
from lessons_exercises.lesson_02.managers import SMALL
from lessons_lib.checks import Exercise, Mistake
from paged_attention.kv_cache import PagedAttentionManager


def free(
    self,
    seq_id,
    *,
    blocks=lambda blocks: blocks,
    clear=True,
    recycle=True,
    forget=True,
    zero=False,
    outright=False,
    device=True,
    cpu=True,
):
    """free_sequence with a place for each mistake."""
    row = self.get(seq_id).row
    for block_id in blocks(self.blocks_of(seq_id)):
        self.block_manager.free(block_id)
        while outright and self.block_manager.get_ref_count(block_id):
            self.block_manager.free(block_id)
    if forget:
        del self.sequences[seq_id]
    if clear:
        if cpu:
            self.table.cpu[row] = 0 if zero else -1
        if device:
            self.table.on_device[row] = 0 if zero else -1
    if recycle:
        self.table.free_rows.append(row)


def wrong(**differences):
    def method(self, seq_id):
        free(self, seq_id, **differences)

    return method


def unknown_ignored(self, seq_id):
    if seq_id in self.sequences:
        free(self, seq_id)


def whole_row(self, seq_id):
    row = self.get(seq_id).row
    for block_id in self.table.cpu[row].tolist():
        self.block_manager.free(block_id)
    self.table.clear(self.sequences.pop(seq_id).row)


def cleared_first(self, seq_id):
    sequence = self.get(seq_id)
    self.table.clear(sequence.row)
    blocks = self.table.cpu[sequence.row, : self.blocks_for(sequence.length)].tolist()
    del self.sequences[seq_id]
    for block_id in blocks:
        self.block_manager.free(block_id)


def forgotten_first(self, seq_id):
    self.get(seq_id)
    sequence = self.sequences.pop(seq_id)
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
    self.table.clear(sequence.row)


def shared_kept(self, seq_id):
    self.get(seq_id)
    for block_id in self.blocks_of(seq_id):
        if self.block_manager.get_ref_count(block_id) == 1:
            self.block_manager.free(block_id)
    self.table.clear(self.sequences.pop(seq_id).row)


def with_key_error(method):
    """`method`, but an unknown id is Python's KeyError."""

    def wrong(self, seq_id):
        if seq_id not in self.sequences:
            raise KeyError(seq_id)
        method(self, seq_id)

    return wrong


def forgotten_before_looked_for(self, seq_id):
    sequence = self.sequences.pop(seq_id)
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
    self.table.clear(sequence.row)


def cleared_before_blocks_of(self, seq_id):
    self.table.clear(self.get(seq_id).row)
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
    del self.sequences[seq_id]


def freed_while_used(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        while self.block_manager.get_ref_count(block_id) > 0:
            self.block_manager.free(block_id)
    self.table.clear(self.sequences.pop(seq_id).row)


def full_blocks_only(self, seq_id):
    for block_id in self.blocks_of(seq_id)[: self.get(seq_id).length // self.block_size]:
        self.block_manager.free(block_id)
    self.table.clear(self.sequences.pop(seq_id).row)


def row_listed_twice(self, seq_id):
    row = self.get(seq_id).row
    free(self, seq_id)
    self.table.free_rows.append(row)


def cleared_in_the_loop(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
        self.table.clear(self.get(seq_id).row)
    del self.sequences[seq_id]


def all_in_the_loop(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
        self.table.clear(self.sequences.pop(seq_id).row)


def contents_wiped(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        self.kv_cache[:, :, block_id] = 0
    free(self, seq_id)


def id_for_row(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
    self.sequences.pop(seq_id)
    self.table.clear(seq_id)


def id_for_row_at_the_end(self, seq_id):
    for block_id in self.blocks_of(seq_id):
        self.block_manager.free(block_id)
    self.table.clear(seq_id)
    self.sequences.pop(seq_id)


def length_zero(self, seq_id):
    sequence = self.get(seq_id)
    free(self, seq_id, forget=False)
    sequence.length = 0


def entry_of_none(self, seq_id):
    free(self, seq_id)
    self.sequences[seq_id] = None


ADD, FORK = "add_sequence", "fork_sequence"
CASES = [
    (SMALL, [(ADD, 0, 0)], [(0,)]),
    (SMALL, [(ADD, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 3)], [(0,)]),
    (SMALL, [(ADD, 0, 6)], [(0,)]),
    (SMALL, [(ADD, 3, 3), (ADD, 1, 2)], [(3,)]),
    (SMALL, [(ADD, 3, 3), (ADD, 1, 2)], [(1,), (3,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1)], [(1,), (0,)]),
    (SMALL, [], [(0,)]),
    (SMALL, [(ADD, 0, 2)], [(1,), (0,), (0,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), ("append_token", 1)], [(0,), (1,)]),
]

EXERCISE = Exercise(
    id="2.7",
    title="free a sequence",
    answer_name="free_sequence",
    reference=PagedAttentionManager.free_sequence,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "free_sequence"),
    hidden=functools.partial(managers.hidden, "free_sequence"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "free_sequence"),
    describe=functools.partial(managers.describe, "free_sequence"),
    show=managers.show,
    mistakes=(
        Mistake(
            "blocks-not-freed",
            "The sequence is gone, and its blocks are still counted as used. "
            "The pool shrinks with every sequence.",
            wrong(blocks=lambda blocks: []),
            also=(with_key_error(wrong(blocks=lambda blocks: [])),),
        ),
        Mistake(
            "only-the-first-block",
            "Only the first block came back. Every block of the sequence has one user less.",
            wrong(blocks=lambda blocks: blocks[:1]),
        ),
        Mistake(
            "last-block-kept",
            "The last block did not come back. A partly filled block is a block.",
            wrong(blocks=lambda blocks: blocks[:-1]),
            also=(full_blocks_only,),
        ),
        Mistake(
            "block-zero-kept",
            "Block 0 did not come back. "
            "It is a block like the others; an entry without a block is -1.",
            wrong(blocks=lambda blocks: [block_id for block_id in blocks if block_id > 0]),
        ),
        Mistake(
            "only-the-last-block",
            "Only the last block came back. Every block of the sequence has one user less.",
            wrong(blocks=lambda blocks: blocks[-1:]),
        ),
        Mistake(
            "positions-for-ids",
            "You freed the blocks 0, 1, 2, …, as many as the sequence has. "
            "Its ids stand in its row.",
            wrong(blocks=lambda blocks: range(len(blocks))),
        ),
        Mistake(
            "frees-shared-outright",
            "A block that another sequence uses became free. "
            "Call `free` once: it takes away one user.",
            wrong(outright=True),
            also=(freed_while_used,),
        ),
        Mistake(
            "row-not-given-back",
            "The row is as it was: it still names the blocks, "
            "and no other sequence may have it. `table.clear` does both.",
            wrong(clear=False, recycle=False),
        ),
        Mistake(
            "row-not-cleared",
            "The row still names the old blocks. "
            "The next sequence in this row would find them behind its own.",
            wrong(clear=False),
        ),
        Mistake(
            "zero-is-a-block",
            "The row is filled with 0, and 0 is a real block. An entry without a block is -1.",
            wrong(zero=True),
        ),
        Mistake(
            "device-table-forgotten",
            "The row is empty in the CPU's table only; "
            "the device's still names the old blocks. `table.clear` empties both.",
            wrong(device=False),
        ),
        Mistake(
            "cpu-table-forgotten",
            "The row is empty in the device's table only; "
            "the CPU's still names the old blocks. `table.clear` empties both.",
            wrong(cpu=False),
        ),
        Mistake(
            "row-not-recycled",
            "The row is not free for another sequence. "
            "After as many sequences as the table has rows, none can start.",
            wrong(recycle=False),
        ),
        Mistake(
            "row-listed-twice",
            "The row is in `free_rows` twice, so two sequences would get it. "
            "`table.clear` has put it there already.",
            row_listed_twice,
        ),
        Mistake(
            "cleared-in-the-loop",
            "The row is given back inside the loop over the blocks: once for each block, "
            "and not at all where there is none.",
            cleared_in_the_loop,
            also=(all_in_the_loop,),
        ),
        Mistake(
            "contents-wiped",
            "You wiped the blocks. Another sequence may still read them, "
            "and in a free block nobody reads what is left.",
            contents_wiped,
        ),
        Mistake(
            "sequence-not-forgotten",
            "The manager still knows the sequence. "
            "Its id can never be used again, and a second call would free its blocks twice.",
            wrong(forget=False),
            also=(length_zero, entry_of_none),
        ),
        Mistake(
            "unknown-ignored",
            "There is no such sequence, and no error says so. "
            "Whoever frees a sequence twice has a mistake to find.",
            unknown_ignored,
        ),
        Mistake(
            "key-error",
            "There is no such sequence, and the error is Python's KeyError. "
            "`get` and `blocks_of` raise the one of the table above.",
            with_key_error(free),
        ),
        Mistake(
            "forgotten-before-read",
            "The sequence was removed from `self.sequences` before its blocks were read, "
            "so `blocks_of` does not know it any more.",
            forgotten_first,
            also=(forgotten_before_looked_for,),
        ),
        Mistake(
            "shared-count-kept",
            "A shared block is not freed at all. "
            "It has one user less: `free` counts, and keeps the block while others use it.",
            shared_kept,
        ),
        Mistake(
            "id-for-row",
            "You clear the row whose number is the sequence's id. "
            "Its row is in `self.sequences[seq_id].row`.",
            id_for_row,
            also=(id_for_row_at_the_end,),
        ),
        Mistake(
            "whole-row-freed",
            "You freed every entry of the row, the -1 behind the last block included.",
            whole_row,
        ),
        Mistake(
            "cleared-before-read",
            "The row was emptied before its blocks were read, so what you freed was -1.",
            cleared_first,
            also=(cleared_before_blocks_of,),
        ),
    ),
    hints=(
        (
            "What did the sequence hold? "
            "Blocks, a row of the table, its entry in `self.sequences`. Each goes back."
        ),
        "Read the blocks before you empty the row.",
        "`table.clear` empties a row on both sides and makes it free.",
    ),
)
