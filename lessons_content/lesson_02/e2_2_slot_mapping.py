"""Exercise 2.2: slots.

Which entry of the block table belongs to position 5 when a block holds 4 tokens? And to
positions 3 and 4?

A tensor can be indexed by a tensor: `block_ids[positions // block_size]` looks up all blocks
at once.

The table is int32, slots are int64: `.long()` changes the type.
"""

import torch

from lessons_content.exercises.kit import Text, exercise, tensors
from paged_attention.pool.slots import slot_mapping

MOST_SLOTS = 1000  # of a result; of those with more, only the number counts


def observe(answer, case):
    block_size, blocks, positions, spare = case
    block_ids = torch.tensor(blocks + [-1] * spare, dtype=torch.int32)
    positions = torch.tensor(positions, dtype=torch.int64)
    slots = answer(block_ids, positions, block_size)
    are_many = isinstance(slots, torch.Tensor) and slots.numel() > MOST_SLOTS
    result = Text(f"{slots.numel():,} slots") if are_many else tensors.values(slots)
    names = "block_ids afterwards", "positions afterwards"
    return result, *tensors.values((block_ids, positions), *names)


def describe(case):
    block_size, blocks, positions, spare = case
    return f"block_ids {blocks + [-1] * spare}, positions {positions}, block_size {block_size}"


# A float32 rounds this position up. It is tried last: some mistakes give all slots.
FAR = (2**20, [*range(17, -1, -1)], [17 * 2**20 - 1], 0)
# (block size, the sequence's blocks, positions, entries of -1 after them)
CASES = [
    (2, [0], [0], 0),
    (2, [3], [0], 1),
    (2, [3], [1], 1),
    (2, [3], [0, 1], 1),
    (2, [3, 1], [1, 2], 0),
    (2, [3, 1], [2, 3], 2),
    (4, [5, 0, 2], [0, 4, 8], 1),
    (4, [5, 0, 2], [11], 0),
    (4, [5, 0, 2], [7, 3, 0], 1),
    (3, [4, 7, 1], list(range(9)), 0),
    (1, [6, 2, 4], [0, 1, 2], 1),
    (16, [9, 3], [15, 16, 31], 6),
    (2, [3, 1], [], 0),
    (16, [2**30 + 7, 200_000_000], [3, 30], 0),
    FAR,
]


def hidden(chance):
    """Any positions in any order; none; one pool whose slots do not fit into 32 bits."""
    for number in range(12):
        block_size, length = chance.randint(1, 20), chance.randint(1, 6)
        blocks = chance.sample(range(2 * length), length)
        num_tokens = block_size * length
        positions = chance.sample(range(num_tokens), chance.randint(1, min(num_tokens, 9)))
        yield block_size, blocks, positions, number % 3
    yield chance.randint(2, 20), chance.sample(range(9), 3), [], 2
    far = [chance.randrange(2**28, 2**31) for _ in range(3)]
    yield 16, far, [chance.randrange(16), chance.randrange(16, 48)], 1
    yield 2**20, chance.sample(range(40), 18), [17 * 2**20 - 1], 1


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="slot_mapping",
    chancy=lambda case: case is FAR,
    size=lambda case: (len(case[2]), len(case[1]) + case[3], case[0], max(case[1])),
)
