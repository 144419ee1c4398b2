"""Exercise 0.1: blocks needed.

How many blocks do 16 tokens need when a block holds 16? And 17? What does `17 // 16` give?

`a // b` rounds down. Adding just enough to `a` first makes it round up. What is the smallest
amount that lifts 17 to the next multiple of 16 without lifting 16?
"""

import math
from numbers import Integral

import numpy

from lessons_content.exercises.kit import Text, exercise


def blocks_needed(num_tokens, block_size):
    return -(-num_tokens // block_size)


def observe(answer, case):
    result = answer(*case)
    # True equals 1 and 2.0 equals 2 in Python; a count of blocks is an integer, NumPy's or
    # Python's.
    if isinstance(result, Integral) and not isinstance(result, bool):
        return int(result)
    return Text(f"{result!r}, of type {type(result).__name__}")


CASES = [(0, 16), (1, 16), (16, 16), (17, 16), (5, 1), (24, 16)]
CASES += [(2, 16), (32, 16), (33, 16), (1000, 16), (7, 8), (9, 8), (9, 3), (10, 3)]
# what is nearly enough with small blocks, or in 32 bits; and -1 / 1, which needs no rounding
CASES += [(1, 4096), (2**24 + 1, 2**15), (0, 1)]


def hidden(chance):
    """No token; then full blocks, one token less and one more."""
    for block_size in chance.sample(range(2, 200), 5):
        full = block_size * chance.randint(1, 80)
        yield from ((num_tokens, block_size) for num_tokens in (0, full, full - 1, full + 1))


def size(case):
    """Blocks of one token come last: they say little about blocks."""
    num_tokens, block_size = case
    return num_tokens, block_size == 1, block_size


EXERCISE = exercise(globals(), answer_name="blocks_needed")
