"""Exercise 2.6: fork a sequence."""

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
    (SMALL, [(ADD, 0, 1), (ADD, 1, 2), ("free_sequence", 0)], [(1, 2)]),
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
    reference=PagedAttentionManager.fork_sequence,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "fork_sequence"),
    hidden=functools.partial(managers.hidden, "fork_sequence"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "fork_sequence"),
    describe=functools.partial(managers.describe, "fork_sequence"),
    same=managers.same,
    show=managers.show,
    mistakes=Bank("2.6", "fork_sequence", __file__, globals()),
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
