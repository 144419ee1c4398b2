"""Exercise 2.5: a sequence grows by a token."""

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
    (SMALL, [(ADD, 0, 0)], [(0,)]),
    (SMALL, [(ADD, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 2)], [(0,)]),
    (SMALL, [(ADD, 0, 0)], [(0,)] * 6),
    (SMALL | {"block_size": 1}, [(ADD, 0, 1)], [(0,), (0,)]),
    (SMALL, [(ADD, 0, 1), (ADD, 5, 2)], [(5,), (0,), (0,), (5,)]),
    (SMALL, [(ADD, 0, 6)], [(0,)]),
    (SMALL, [(ADD, 0, 4), (ADD, 1, 4)], [(0,), (1,)]),
    (SMALL, [], [(3,)]),
    (SMALL, [(ADD, 0, 1), (FORK, 0, 1)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 1), (FORK, 0, 1)], [(1,), (0,)]),
    (SMALL, [(ADD, 0, 2), (FORK, 0, 1)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), (ADD, 2, 4)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), (ADD, 2, 3)], [(0,), (2,), (1,), (2,)]),
    (SMALL, [(ADD, 0, 5), (ADD, 1, 1)], [(0,), (1,), (1,)]),
    (
        ROOMY,
        [(ADD, 0, 7), (FORK, 0, 1), (FORK, 0, 2)],
        [(2,), (1,), (0,), (2,), (1,), (0,), (1,)],
    ),
    (
        ROOMY,
        [(ADD, 0, 4), ("free_sequence", 0), (ADD, 1, 5), (FORK, 1, 0)],
        [(0,), (1,), (0,), (1,)] * 2,
    ),
]

EXERCISE = Exercise(
    id="2.5",
    title="append a token",
    answer_name="append_token",
    reference=PagedAttentionManager.append_token,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "append_token"),
    hidden=functools.partial(managers.hidden, "append_token"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "append_token"),
    describe=functools.partial(managers.describe, "append_token"),
    same=managers.same,
    show=managers.show,
    points=2,
    mistakes=Bank("2.5", "append_token", __file__, globals()),
    hints=(
        (
            "`divmod(sequence.length, self.block_size)` says where the new token goes: "
            "which entry of the row, which offset."
        ),
        (
            "Three situations: the offset is 0 (a new block), the last block is shared "
            "(a copy of it), neither (write in place)."
        ),
        (
            "Both `allocate()` calls can fail, and so can `blocks_for(length + 1)`. "
            "Nothing may have changed before them."
        ),
        "`self.kv_cache[:, :, block_id]` is the block in every layer, keys and values.",
    ),
)
