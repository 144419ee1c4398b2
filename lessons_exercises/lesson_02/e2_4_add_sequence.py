"""Exercise 2.4: add a sequence."""

import functools

import torch

from lessons_exercises.lesson_02 import managers
from lessons_exercises.lesson_02.managers import SMALL
from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import (
    DuplicateSequenceError,
    OutOfRowsError,
    PagedAttentionManager,
    Sequence,
    SequenceTooLongError,
    UnknownSequenceError,
)

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
        [(3, 1)],
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
    reference=PagedAttentionManager.add_sequence,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "add_sequence"),
    hidden=functools.partial(managers.hidden, "add_sequence"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "add_sequence"),
    describe=functools.partial(managers.describe, "add_sequence"),
    same=managers.same,
    show=managers.show,
    mistakes=Bank("2.4", "add_sequence", __file__, globals()),
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
