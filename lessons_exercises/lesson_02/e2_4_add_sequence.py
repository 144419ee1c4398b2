"""Exercise 2.4: add a sequence."""

import functools

from lessons_exercises.lesson_02 import managers
from lessons_exercises.lesson_02.managers import SMALL
from lessons_lib.checks import Exercise, Mistake
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import DuplicateSequenceError, PagedAttentionManager, Sequence

add_sequence = PagedAttentionManager.add_sequence


def with_count(count):
    """The right method, but for the number of blocks: count(manager, num_tokens)."""

    def wrong(self, seq_id, num_tokens):
        self.check_new(seq_id)
        self.blocks_for(num_tokens)
        needed = count(self, num_tokens)
        if needed > self.block_manager.get_num_free_blocks():
            raise OutOfBlocksError
        self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])

    return wrong


def one_after_the_other(self, seq_id, num_tokens):
    self.check_new(seq_id)
    blocks = []
    for _ in range(self.blocks_for(num_tokens)):
        blocks.append(self.block_manager.allocate())
    self.start(seq_id, num_tokens, blocks)


def nothing_checked(self, seq_id, num_tokens):
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])


def checked_after_taking(self, seq_id, num_tokens):
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    blocks = [self.block_manager.allocate() for _ in range(needed)]
    self.check_new(seq_id)
    self.start(seq_id, num_tokens, blocks)


def negative_accepted(self, seq_id, num_tokens):
    add_sequence(self, seq_id, max(0, num_tokens))
    self.sequences[seq_id].length = num_tokens


def duplicate_unnoticed(self, seq_id, num_tokens):
    if not self.table.free_rows:
        self.check_new(seq_id)
    self.sequences.pop(seq_id, None)
    add_sequence(self, seq_id, num_tokens)


def rows_unchecked(self, seq_id, num_tokens):
    if seq_id in self.sequences:
        raise DuplicateSequenceError
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])


def too_long_unchecked(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = -(-num_tokens // self.block_size)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])


def wrong_length(self, seq_id, num_tokens):
    add_sequence(self, seq_id, num_tokens)
    self.sequences[seq_id].length = self.blocks_for(num_tokens) * self.block_size


def table_not_written(self, seq_id, num_tokens):
    add_sequence(self, seq_id, num_tokens)
    row = self.sequences[seq_id].row
    self.table.cpu[row] = self.table.on_device[row] = -1


def device_table_forgotten(self, seq_id, num_tokens):
    add_sequence(self, seq_id, num_tokens)
    self.table.on_device[self.sequences[seq_id].row] = -1


def id_for_row(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.table.write(seq_id, 0, [self.block_manager.allocate() for _ in range(needed)])
    self.sequences[seq_id] = Sequence(seq_id, num_tokens)


def exact_fit_refused(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    if needed >= self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])


def started_first(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    self.start(seq_id, num_tokens, [])
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.table.write(
        self.sequences[seq_id].row, 0, [self.block_manager.allocate() for _ in range(needed)]
    )


def id_for_row_entered_first(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    blocks = [self.block_manager.allocate() for _ in range(needed)]
    self.sequences[seq_id] = Sequence(seq_id, num_tokens)
    self.table.write(seq_id, 0, blocks)


def when_full(error):
    """The right method, but with too few blocks there is another error, or none."""

    def wrong(self, seq_id, num_tokens):
        self.check_new(seq_id)
        if self.blocks_for(num_tokens) <= self.block_manager.get_num_free_blocks():
            add_sequence(self, seq_id, num_tokens)
        elif error:
            raise error

    return wrong


def with_blocks(take, length=lambda num_tokens, needed: num_tokens):
    """The right method, but for the list of blocks, take(manager, needed), and the length."""

    def wrong(self, seq_id, num_tokens):
        self.check_new(seq_id)
        needed = self.blocks_for(num_tokens)
        if needed > self.block_manager.get_num_free_blocks():
            raise OutOfBlocksError
        self.start(seq_id, length(num_tokens, needed), take(self.block_manager, needed))

    return wrong


def taken(manager, needed):
    return [manager.allocate() for _ in range(needed)]


def whole_row_taken(self, seq_id, num_tokens):
    """Looks whether what the tokens need is free, and takes more."""
    self.check_new(seq_id)
    if self.blocks_for(num_tokens) > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, taken(self.block_manager, self.max_blocks_per_seq))


def tokens_for_blocks(self, seq_id, num_tokens):
    self.check_new(seq_id)
    self.blocks_for(num_tokens)
    if num_tokens > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    add_sequence(self, seq_id, num_tokens)


def no_tokens_refused(self, seq_id, num_tokens):
    if num_tokens == 0:
        raise ValueError
    add_sequence(self, seq_id, num_tokens)


def boundary_without_row_limit(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = num_tokens // self.block_size + 1
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(needed)])


def one_free_is_enough(self, seq_id, num_tokens):
    if not self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    one_after_the_other(self, seq_id, num_tokens)


def row_taken_first(self, seq_id, num_tokens):
    self.check_new(seq_id)
    row = self.table.free_rows.pop()
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.sequences[seq_id] = Sequence(row, num_tokens)
    self.table.write(row, 0, taken(self.block_manager, needed))


def row_left_in_the_list(self, seq_id, num_tokens):
    row = self.table.free_rows[-1:]
    add_sequence(self, seq_id, num_tokens)
    self.table.free_rows += row


def looked_for(self, seq_id, num_tokens):
    self.get(seq_id)
    nothing_checked(self, seq_id, num_tokens)


def looked_for_and_checked(self, seq_id, num_tokens):
    self.get(seq_id)
    add_sequence(self, seq_id, num_tokens)


def nothing_for_no_tokens(self, seq_id, num_tokens):
    self.check_new(seq_id)
    if num_tokens:
        add_sequence(self, seq_id, num_tokens)


def cpu_table_forgotten(self, seq_id, num_tokens):
    add_sequence(self, seq_id, num_tokens)
    self.table.cpu[self.sequences[seq_id].row] = -1


def not_entered(self, seq_id, num_tokens):
    add_sequence(self, seq_id, num_tokens)
    del self.sequences[seq_id]


def start_arguments_swapped(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(num_tokens, seq_id, taken(self.block_manager, needed))


def counted_twice(manager, needed):
    blocks = taken(manager, needed)
    for block_id in blocks:
        manager.increase_ref_count(block_id)
    return blocks


CASES = [
    (SMALL, [], [(0, 0)]),
    (SMALL, [], [(0, 1)]),
    (SMALL, [], [(0, 2)]),
    (SMALL, [], [(0, 3)]),
    (SMALL, [], [(7, 3)]),
    (SMALL, [], [(0, 4), (1, 3)]),
    (SMALL, [("add_sequence", 0, 1)], [(0, 1)]),
    (SMALL, [("add_sequence", 0, 5)], [(1, 3)]),
    (SMALL, [("add_sequence", 0, 5)], [(1, 5), (2, 2)]),
    (SMALL, [], [(0, 7)]),
    (SMALL, [], [(0, 6), (1, 2), (2, 0)]),
    (
        SMALL,
        [("add_sequence", 0, 1), ("add_sequence", 1, 1), ("add_sequence", 2, 1)],
        [(3, 1), (1, 1)],
    ),
    (
        SMALL,
        [("add_sequence", 0, 3), ("add_sequence", 1, 2), ("free_sequence", 0)],
        [(2, 4), (0, 1)],
    ),
    (
        {"num_blocks": 8, "block_size": 3, "max_num_seqs": 2, "max_blocks_per_seq": 8},
        [],
        [(5, 24)],
    ),
    (
        {"num_blocks": 8, "block_size": 16, "max_num_seqs": 4, "max_blocks_per_seq": 4},
        [],
        [(0, 64), (1, 33), (2, 17), (2, 16)],
    ),
    (SMALL, [], [(0, -1)]),
]

EXERCISE = Exercise(
    id="2.4",
    title="add a sequence",
    answer_name="add_sequence",
    reference=add_sequence,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "add_sequence"),
    hidden=functools.partial(managers.hidden, "add_sequence"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "add_sequence"),
    describe=functools.partial(managers.describe, "add_sequence"),
    show=managers.show,
    mistakes=(
        Mistake(
            "floor-division",
            "The number of blocks was rounded down: the last tokens have no place.",
            with_count(lambda self, num_tokens: num_tokens // self.block_size),
        ),
        Mistake(
            "block-boundary-off-by-one",
            "You take a block more than the tokens need when they fill their blocks exactly.",
            with_count(lambda self, num_tokens: num_tokens // self.block_size + 1),
            also=(boundary_without_row_limit,),
        ),
        Mistake(
            "at-least-one-block",
            "A sequence of no tokens needs no block; yours takes one.",
            with_count(lambda self, num_tokens: max(1, -(-num_tokens // self.block_size))),
        ),
        Mistake(
            "a-block-for-each-token",
            "You take a block for each token. A block holds block_size of them.",
            with_count(lambda self, num_tokens: num_tokens),
        ),
        Mistake(
            "partial-allocation",
            "The pool ran out in the middle, and the blocks taken until then belong "
            "to nobody: they are lost. Find out before the first block whether there "
            "are enough. (Do you catch the error, to give them back? Which class? "
            "The C++ manager's OutOfBlocksError is not the Python one.)",
            one_after_the_other,
            also=(one_free_is_enough,),
        ),
        Mistake(
            "exact-fit-refused",
            "You refuse a sequence that needs as many blocks as are free. It fits.",
            exact_fit_refused,
        ),
        Mistake(
            "check-forgotten",
            "Nothing looks whether the id is new and whether a row is free: "
            "`check_new` does, before anything is taken.",
            nothing_checked,
        ),
        Mistake(
            "checked-after-taking",
            "`check_new` comes after the blocks were taken. "
            "When it raises, they belong to nobody.",
            checked_after_taking,
        ),
        Mistake(
            "negative-accepted",
            "A negative number of tokens was accepted. `blocks_for` refuses it.",
            negative_accepted,
        ),
        Mistake(
            "duplicate-unnoticed",
            "The id was taken, and you started a second sequence under it: "
            "the first one's blocks belong to nobody now.",
            duplicate_unnoticed,
        ),
        Mistake(
            "rows-unchecked",
            "Every row of the table is in use. You found that out after the blocks had been "
            "taken, so they are lost; `check_new` looks for both, the id and the row.",
            rows_unchecked,
        ),
        Mistake(
            "too-long-unnoticed",
            "The sequence needs more blocks than a row has entries. "
            "You found that out when the blocks were taken; `blocks_for` raises before that.",
            too_long_unchecked,
        ),
        Mistake(
            "length-in-whole-blocks",
            "The sequence's length is that of its blocks. "
            "It is the number of its tokens; the last block need not be full.",
            wrong_length,
        ),
        Mistake(
            "length-in-blocks",
            "The sequence's length is the number of its blocks. "
            "It is the number of its tokens.",
            with_blocks(taken, lambda num_tokens, needed: needed),
        ),
        Mistake(
            "tokens-for-blocks",
            "You compare the number of tokens with the number of free blocks. "
            "A block holds block_size tokens.",
            tokens_for_blocks,
        ),
        Mistake(
            "no-tokens-refused",
            "A sequence of no tokens is refused. "
            "It has a row and no block, until its first token comes.",
            no_tokens_refused,
        ),
        Mistake(
            "another-error",
            "Too few blocks are free, and the error is not the one that the docstring names. "
            "A caller who waits for OutOfBlocksError misses it.",
            when_full(MemoryError),
            also=(when_full(RuntimeError), when_full(ValueError)),
        ),
        Mistake(
            "refused-in-silence",
            "Too few blocks are free, and the call returns as if the sequence had started. "
            "The caller has to hear of it.",
            when_full(None),
        ),
        Mistake(
            "started-before-the-check",
            "The sequence has its row before you know whether there are enough blocks. "
            "When it is refused, the manager knows it all the same.",
            started_first,
        ),
        Mistake(
            "row-taken-first",
            "You take a row out of `free_rows` before you know whether there "
            "are enough blocks. When the call raises, the row is lost.",
            row_taken_first,
        ),
        Mistake(
            "row-left-in-the-list",
            "The sequence has a row that is in `free_rows` still, so the next one gets "
            "the same. Whoever takes a row removes it from there; `start` does.",
            row_left_in_the_list,
        ),
        Mistake(
            "looks-for-the-new-one",
            "`get` raises an error for an id that is not there, "
            "and a new one is not there yet. `check_new` is its opposite.",
            looked_for,
            also=(looked_for_and_checked,),
        ),
        Mistake(
            "nothing-for-no-tokens",
            "A sequence of no tokens was not started. "
            "It has a row and no block, until its first token comes.",
            nothing_for_no_tokens,
        ),
        Mistake(
            "sequence-not-entered",
            "The blocks and the row are right, "
            "and `self.sequences` does not know the sequence. `start` enters it.",
            not_entered,
        ),
        Mistake(
            "length-not-set",
            "The sequence's length is 0, as if it had no tokens. "
            "It is the number of its prompt's tokens.",
            with_blocks(taken, lambda num_tokens, needed: 0),
        ),
        Mistake(
            "counted-twice",
            "Each block has two users. `allocate()` has counted its only one already.",
            with_blocks(counted_twice),
        ),
        Mistake(
            "number-for-blocks",
            "`start` writes a list of block ids into the row. "
            "What you hand it is a number of blocks.",
            with_blocks(lambda manager, needed: needed),
            also=(with_blocks(lambda manager, needed: len(taken(manager, needed))),),
        ),
        Mistake(
            "start-arguments-swapped",
            "The sequence's id and its length have changed places. "
            "`start` takes the id first, then the length, then the blocks.",
            start_arguments_swapped,
        ),
        Mistake(
            "cpu-table-forgotten",
            "The row is filled in the device's table only, and the manager reads the CPU's. "
            "`table.write` writes both.",
            cpu_table_forgotten,
        ),
        Mistake(
            "one-block-for-all",
            "`allocate()` is called once, and its block stands in every entry. "
            "Each entry needs a block of its own.",
            with_blocks(lambda manager, needed: [manager.allocate()] * needed),
        ),
        Mistake(
            "positions-for-ids",
            "The row holds the numbers 0, 1, 2, …, not the ids that `allocate()` gave.",
            with_blocks(
                lambda manager, needed: [
                    index for index, _ in enumerate(taken(manager, needed))
                ]
            ),
            also=(with_blocks(lambda manager, needed: list(range(needed))),),
        ),
        Mistake(
            "blocks-in-reverse",
            "The row holds the right blocks, the last one first. "
            "They stand in the order in which `allocate()` gave them.",
            with_blocks(lambda manager, needed: taken(manager, needed)[::-1]),
        ),
        Mistake(
            "whole-row-taken",
            "You take as many blocks as a row has entries. "
            "Take what the tokens need; the rest follows when the sequence grows.",
            with_count(lambda self, num_tokens: self.max_blocks_per_seq),
            also=(whole_row_taken,),
        ),
        Mistake(
            "table-not-written",
            "The blocks are taken, and the sequence's row of the block table is still empty.",
            table_not_written,
        ),
        Mistake(
            "device-table-forgotten",
            "The table in the CPU's memory and the one on the device differ: "
            "a kernel reads the latter. `table.write` writes both.",
            device_table_forgotten,
        ),
        Mistake(
            "id-for-row",
            "You use the sequence's id as its row. "
            "An id may be any number; which row is free, `table.free_rows` knows.",
            id_for_row,
            also=(id_for_row_entered_first,),
        ),
    ),
    hints=(
        (
            "Everything that can fail comes first: "
            "the id, the row, the length, the number of free blocks. Then take."
        ),
        (
            "`check_new` and `blocks_for` raise by themselves. "
            "What is left for you to compare is the number of blocks needed "
            "with `self.block_manager.get_num_free_blocks()`."
        ),
        "`start` takes a row, writes the blocks into it and remembers the sequence.",
    ),
)
