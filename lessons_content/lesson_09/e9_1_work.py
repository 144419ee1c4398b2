"""Exercise 9.1: the work of a batch.

Draw a sequence with 2 queries and 5 keys: a row for each query, a column for each key. Which
squares does causal attention fill?

A filled square is a pair of a query and a key. For one head, its score takes head_size
multiplications. How many additions does that take? And what does the same pair cost in the
product of weights and values?

The keys before the first query are seen by all queries: they make a rectangle. The others make
a triangle with its diagonal, and 1 + 2 + … + n is n * (n + 1) // 2.

For the bytes, count vectors of head_size numbers. Queries and outputs have one for each query
and query head. Keys and values have one for each key and KV head.
"""

import math

from lessons_content.exercises.kit import calls, counted, exercise, outcomes
from paged_attention.prefill.tile_counts import count_work

# About 100,000 pairs at most in each, so that an answer may count them one by one.
CASES = [
    ([1], [1], 1, 1, 1, 1),
    ([1], [3], 1, 1, 1, 1),
    ([2], [2], 1, 1, 1, 1),
    ([2], [5], 1, 1, 1, 1),
    ([2], [5], 1, 1, 4, 1),
    ([2], [5], 2, 1, 4, 1),
    ([2], [5], 2, 1, 4, 2),
    ([3], [3], 2, 2, 4, 2),
    ([1, 2], [4, 2], 4, 2, 8, 2),
    ([3, 0, 2], [5, 0, 9], 6, 2, 8, 4),
    ([4, 4, 1], [4, 7, 30], 6, 3, 16, 2),
    ([1, 1, 1], [8, 40, 17], 8, 2, 64, 1),
    ([64, 3], [64, 90], 8, 1, 80, 4),
    ([16, 100, 1, 50], [300, 100, 999, 51], 32, 8, 128, 2),
    ([256], [384], 64, 8, 128, 2),
    ([], [], 2, 1, 4, 2),
]


def hidden(chance):
    for number in range(12):
        cached = [
            chance.choice((0, chance.randint(1, 9), chance.randint(10, 400)))
            for _ in range(number // 3)
        ]
        cached.append(chance.randint(3, 300))
        q_lens = [chance.choice((1, chance.randint(2, 9), 99)) for _ in cached[1:]]
        q_lens.append(chance.randint(2, 99))
        if number % 4 == 3:
            cached[0] = q_lens[0] = 0
        kv_lens = [sum(both) for both in zip(cached, q_lens, strict=True)]
        num_kv_heads, group = chance.randint(2, 9), chance.randint(2, 8)
        sizes = chance.randint(3, 256), chance.choice((1, 2, 4))
        yield q_lens, kv_lens, group * num_kv_heads, num_kv_heads, *sizes
    yield [], [], chance.randint(2, 9), 1, chance.randint(3, 256), 2


def show(expected, actual):
    ours, theirs = outcomes.show(expected, actual)
    both = ((expected, ours), (actual, theirs))
    return tuple(
        "{!r} operations, {!r} bytes".format(*result)
        if isinstance(result, tuple) and len(result) == 2
        else words
        for result, words in both
    )


def describe(case):
    q_lens, kv_lens, num_q_heads, num_kv_heads, head_size, num_bytes = case
    return (
        f"q_lens = {q_lens}, kv_lens = {kv_lens}, {counted(num_q_heads, 'query head')} and "
        f"{counted(num_kv_heads, 'KV head')} of size {head_size}, "
        f"{counted(num_bytes, 'byte')} a number"
    )


EXERCISE = exercise(
    globals(),
    calls.taking(count_work, tuple),
    size=lambda case: (sum(case[1]), sum(case[0]), math.prod(case[2:])),
    # An empty batch has no work. An error there says little of what else went wrong.
    chancy=lambda case: not case[0],
)
