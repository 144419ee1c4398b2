"""Exercise 2.7: free a sequence."""

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
    same=managers.same,
    show=managers.show,
    mistakes=Bank("2.7", "free_sequence", __file__, globals()),
    hints=(
        (
            "What did the sequence hold? "
            "Blocks, a row of the table, its entry in `self.sequences`. Each goes back."
        ),
        "Read the blocks before you empty the row.",
        "`table.clear` empties a row on both sides and makes it free.",
    ),
)
