"""Exercise 1.6: copy on write.

`divmod(position, block_size)` gives both: which block of the list, and which slot in it.

Only a block with a reference count above 1 is copied. The copy takes four steps: allocate,
copy the contents, free the old one, put the new id into the list.

Of those four steps one can fail. It comes first, so that nothing is half done.
"""

import re

import torch

from lessons_content.exercises.kit import Text, error_of, exercise, retold
from lessons_content.exercises.naming_words import SLIPS
from lessons_content.lesson_01.managers import counts_of, manager_of
from paged_attention.pool.block_manager import OutOfBlocksError


def write(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks[index] = block_id = copy_id
    pool[block_id, offset] = value


# (blocks in the pool, block size, blocks of the writer, further users of them, position to
# write, value)
CASES = [
    (2, 4, [0], [], 0, 70),
    (2, 4, [0], [0], 0, 70),
    (2, 4, [0], [0], 3, 71),
    (3, 4, [0, 1], [0, 1], 4, 72),
    (3, 4, [0, 1], [0], 3, 73),
    (3, 4, [0, 1], [0], 5, 0),
    (1, 4, [0], [0], 2, 74),
    (1, 4, [0], [], 3, 75),
    (2, 4, [1, 0], [1], 1, 76),
    (3, 4, [0], [0, 0], 1, 77),
    (3, 1, [2, 0], [2], 0, 78),
    (3, 1, [2, 0], [2], 1, 79),
    (4, 2, [1, 0], [1, 0], 1, 85),
    (4, 3, [3, 1], [1, 1, 3], 5, 80),
    (6, 4, [4, 1, 3], [4, 1], 6, 81),
    (6, 4, [4, 1, 3], [4, 1], 11, 82),
    (6, 16, [5, 2, 0], [5, 2, 0], 32, 83),
    (6, 4, [5, 2, 0], [5, 2, 0, 5, 2, 0], 8, 84),
]


def hidden(chance):
    """By turns with a block to spare and without. Three of four go to a shared block."""
    for number in range(16):
        length, block_size = chance.randint(1, 4), chance.randint(1, 6)
        num_blocks = length + number % 2
        blocks = chance.sample(range(num_blocks), length)
        position = chance.randrange(length * block_size)
        users = chance.choices(blocks, k=chance.randint(0, 3))
        users += blocks[position // block_size :][: number % 4]
        yield num_blocks, block_size, blocks, users, position, chance.randint(100, 999)


def rows(num_blocks, block_size):
    return torch.arange(1, num_blocks * block_size + 1).reshape(num_blocks, block_size)


def observe(answer, case):
    num_blocks, block_size, parent, further_users, position, value = case
    manager = manager_of(num_blocks, parent, further_users, last_first=True)
    pool, blocks = rows(num_blocks, block_size), list(parent)
    error = error_of(answer, manager, pool, blocks, position, value)
    counts = counts_of(manager, num_blocks)
    left = f"; blocks {blocks}; pool {pool.tolist()}; reference counts {counts}"
    return retold(error, left) if error else Text(f"no error{left}")


def same(expected, actual):
    """Errors are compared by their type, and slips by their words.

    PyTorch's words on what it does not support count too.
    """
    return _without_words(expected) == _without_words(actual)


def _without_words(result):
    error = rf"^(?!{'|'.join(SLIPS)})(\w+): (?!unsupported operation).*?; blocks"
    return re.sub(error, r"\1; blocks", result, flags=re.DOTALL)


def describe(case):
    num_blocks, block_size, parent, further_users, position, value = case
    users = parent + further_users
    counts = [users.count(block_id) for block_id in range(num_blocks)]
    pool, last = f"{rows(num_blocks, block_size).tolist()}", num_blocks * block_size
    if last > 12:
        pool = f"of shape {num_blocks, block_size} with the numbers 1 to {last}"
    call = f"write(manager, pool, blocks={parent}, position={position}, value={value})"
    return f"pool {pool}, reference counts {counts}; {call}"


EXERCISE = exercise(
    globals(),
    answer_name="write",
    size=lambda case: (case[0] * case[1], len(case[3]), case[4]),
    points=2,
)
