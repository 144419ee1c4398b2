"""Exercise 1.5: fork a sequence.

How many sequences use each of these blocks before the fork, and how many after it?

The child needs a list of its own with the same ids in it: `list(blocks)`.
"""

from collections.abc import Iterator

from lessons_content.exercises.kit import Text, counted, exercise
from lessons_content.lesson_01.managers import counts_of, manager_of


def fork(manager, blocks):
    for block_id in blocks:
        manager.increase_ref_count(block_id)
    return list(blocks)


# (size of the pool, blocks of the parent in its order, how many forks of it there are already)
CASES = [
    (2, [0], 0),
    (2, [], 0),
    (3, [0, 1], 0),
    (6, [4, 1, 3], 0),
    (6, [5, 0, 2], 2),
    (4, [3, 2, 1, 0], 0),
    (3, [2, 1], 1),
]


def hidden(chance):
    for length in (1, 2, 3, 3, 4, 5, 6, 8, 10):
        num_blocks = length + chance.randint(1, 6)
        yield num_blocks, chance.sample(range(num_blocks), length), chance.randint(0, 3)


def observe(answer, case):
    num_blocks, parent, forks = case
    manager, blocks = manager_of(num_blocks, parent, parent * forks), list(parent)
    child = answer(manager, blocks)
    kind = "the parent's own list" if child is blocks else "a new list"
    if isinstance(child, list):
        shown = f"{kind} {child}"
    elif isinstance(child, Iterator) or callable(child):  # its text would have an address
        shown = f"something of type {type(child).__name__}"
    else:
        shown = f"{child!r}, of type {type(child).__name__}"
    counts = counts_of(manager, num_blocks)
    return Text(f"returns {shown}; parent {blocks}; reference counts {counts}")


def same(expected, actual):
    """Equal, or errors on a name that the manager lacks, whichever it is."""
    lacks = "AttributeError: 'BlockManager' object has no attribute "
    return expected == actual or expected.startswith(lacks) and actual.startswith(lacks)


def describe(case):
    num_blocks, parent, forks = case
    earlier = f" (already forked {counted(forks, 'time')})" if forks else ""
    past = f"a pool of {num_blocks}; the parent's blocks are {parent}{earlier}"
    return f"{past}; fork(manager, {parent})"


EXERCISE = exercise(
    globals(), answer_name="fork", size=lambda case: (len(case[1]), case[2], case[0])
)
