"""Exercise 7.1: the bytes that must be read.

What does one token have in the cache? Begin with its key for one KV head: how many numbers,
how many bytes?

A decode step reads this for every token of every sequence, once. It does not matter how the
tokens are spread over sequences.
"""

import math

from lessons_content.exercises.kit import calls, counted, exercise, listed, outcomes
from paged_attention.ladder.kv_bytes import kv_bytes

CASES = [
    ([1], 1, 1, 1),
    ([3], 1, 1, 1),
    ([3], 1, 4, 1),
    ([3], 2, 4, 1),
    ([3], 2, 4, 2),
    ([5, 2], 3, 8, 2),
    ([0], 2, 64, 2),
    ([17, 0, 1], 7, 64, 4),
    ([31, 16, 9, 40], 8, 128, 2),
    ([1024] * 64, 8, 128, 2),
    ([33, 100, 257], 4, 128, 1),
    ([131_072] * 60, 8, 128, 2),
]


def hidden(chance):
    for number in range(10):
        lengths = [
            chance.choice((0, chance.randint(1, 99), chance.randint(1, 9_999)))
            for _ in range(number // 3)
        ]
        sizes = chance.randint(2, 16), chance.randint(3, 256), chance.choice((1, 2, 4))
        yield [chance.randint(2, 999), *lengths], *sizes


def same(expected, actual):
    """A float is as good as an int."""
    is_number = type(actual) in (int, float)
    return is_number and actual == expected or outcomes.same(expected, actual)


def describe(case):
    lengths, num_kv_heads, head_size, num_bytes = case
    contexts = f"context lengths {listed(lengths)}"
    if len(lengths) > 4:
        contexts = f"{len(lengths)} contexts of {lengths[0]:,} tokens"
    return (
        f"{contexts}, {counted(num_kv_heads, 'KV head')} of size {head_size}, "
        f"{counted(num_bytes, 'byte')} a number"
    )


EXERCISE = exercise(
    globals(),
    calls.taking(kv_bytes),
    size=lambda case: (sum(case[0]), math.prod(case[1:])),
)
