"""Exercise 2.5: append a token.

`divmod(sequence.length, self.block_size)` says where the new token goes: which entry of the
row, which offset.

Three situations: the offset is 0 (a new block), the last block is shared (a copy of it),
neither (write in place).

Both `allocate()` calls can fail, and so can `blocks_for(length + 1)`. Nothing may have changed
before them.

`self.kv_cache[:, :, block_id]` is the block in every layer, keys and values.
"""

from lessons_content.lesson_02.managers import ADD, FORK, FREE, ROOMY, SMALL, exercise

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
    (ROOMY, [(ADD, 0, 4), (FREE, 0), (ADD, 1, 5), (FORK, 1, 0)], [(0,), (1,), (0,), (1,)] * 2),
]

EXERCISE = exercise(globals(), answer_name="append_token", points=2)
