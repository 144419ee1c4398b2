"""Exercise 4.6: count the bytes.

Begin with one token: how many numbers does one layer keep for it, and how many bytes are they?

Count three passes for the gather: reading the blocks, writing the copy, reading the tokens in
the copy. Which of them go by blocks?

For the paged way, only one of the three is left.
"""

import math
import operator

from lessons_content.exercises.kit import Text, exercise, named_where

# marks the case that looks at what kind of numbers an answer returns
KINDS = "kinds of numbers"


def bytes_moved(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    """Bytes of keys and values that one layer reads and writes in one decode step, two ways.

    gather: each block is read whole and written whole to a contiguous copy; attention reads
        the tokens in the copy.
    paged: attention reads the tokens where they are, and nothing else is read or written.
    context_lens: list of int, the tokens of each request that are in the pool, 0 or more.
    bytes_per_number: bytes of a number.
    Returns (gather, paged), two ints.
    """
    # BEGIN SOLUTION 4.6
    bytes_per_token = 2 * num_kv_heads * head_size * bytes_per_number  # a key and a value
    num_blocks = sum(-(-length // block_size) for length in context_lens)
    copied = num_blocks * block_size * bytes_per_token
    paged = sum(context_lens) * bytes_per_token
    return 2 * copied + paged, paged
    # END SOLUTION


# (tokens in the pool of each request, block size, KV heads, head size, bytes of a number)
CASES = [
    ([1], 1, 1, 1, 1),
    ([2], 2, 1, 1, 2),
    ([4], 4, 2, 3, 2),
    ([1], 4, 1, 1, 1),
    ([5], 4, 1, 1, 1),
    ([4, 1], 4, 1, 2, 1),
    ([3, 3], 4, 1, 1, 1),
    ([], 4, 1, 1, 2),
    ([0, 3], 2, 1, 1, 4),
    ([17, 0, 100, 16], 16, 3, 64, 2),
    ([1024], 16, 8, 128, 2),
    ([1000, 5, 333], 16, 8, 128, 2),
    ([31, 32, 33], 32, 5, 80, 4),
    ([7, 3], 3, 1, 1, 1),
    ([1_200_000], 16, 8, 128, 2),  # more bytes than 32 bits count
    ([5], 4, 1, 1, 2, KINDS),
]


def hidden(chance):
    """Lengths around whole blocks; then no request, and the kinds of numbers."""
    for number in range(10):
        block_size = chance.randint(2, 20)
        sizes = [chance.randint(2, 9), chance.randint(3, 99), chance.choice((1, 2, 4))]
        more = 0, 1, block_size - 1
        lengths = [
            block_size * chance.randint(0, 9) + chance.choice(more)
            for _ in range(1 + number // 2)
        ]
        yield lengths, block_size, *sizes
    yield [], chance.randint(2, 20), chance.randint(2, 9), chance.randint(3, 99), 2
    yield [chance.randint(2, 99)], 4, 1, 1, 2, KINDS


def observe(answer, case):
    context_lens, *sizes = case[:5]
    result = named_where(not context_lens, lambda: answer(list(context_lens), *sizes))
    if not isinstance(result, tuple | list):
        return result
    if case[5:] == (KINDS,):
        return Text(f"({', '.join(_kind(number) for number in result)})")
    return tuple(result)


def _kind(number):
    try:
        operator.index(number)
    except TypeError:
        return type(number).__name__
    return "int"


def same(expected, actual):
    """Equal; two floats, both of wrong answers, may be rounded differently."""
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(expected, actual)
    return expected == actual


EXERCISE = exercise(
    globals(),
    answer_name="bytes_moved",
    size=lambda case: (sum(case[0]), len(case[0]), math.prod(case[1:5])),
    # a mistake keeps its name where its numbers are floats
    chancy=lambda case: case[5:] == (KINDS,),
)
