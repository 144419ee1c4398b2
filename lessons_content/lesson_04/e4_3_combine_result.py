"""Exercise 4.3: combine the parts.

What would l be if a block had been counted from a larger maximum? Lesson 03's `merge` did this
for two states.

Three steps: the largest m over the parts; the weight of each part, counted from that; the
weighted mean of o.

The result's l is the sum of the weights. `weight[..., None]` lets a weight multiply all
head_size numbers of o.

If no part has seen a key, the largest m is -inf and the sum of the weights is 0. Use `finite`,
and do not divide.
"""

import math

from lessons_content.exercises.kit import counted, exercise, tensors
from lessons_content.lesson_04 import inputs
from paged_attention.attention import decode

# Levels of 500: exp(500) overflows, exp(-500) is 0, and float32 is exact enough for a detour
# over the logarithm of l. (shape of m, head size, level of the maxima, their spread, the parts
# that saw no key, seed)
CASES = [
    ((1, 1), 2, 0.0, 1.0, (), 0),
    ((2, 1), 2, 0.0, 0.0, (), 101),
    ((2, 1), 2, 0.0, 1.0, (), 222),
    ((3, 2), 2, 0.0, 2.0, (), 3),
    ((2, 1), 2, -3.0, 1.0, (), 144),
    ((2, 1), 2, 0.0, 1.0, (1,), 405),
    ((3, 2), 4, 0.0, 1.0, (0,), 6),
    ((1, 1), 2, 0.0, 1.0, (0,), 87),
    ((2, 2), 2, 0.0, 1.0, (0, 1), 8),
    ((2, 1), 2, 500.0, 1.0, (), 429),
    ((2, 2), 2, -500.0, 1.0, (), 430),
    ((4, 3), 4, 0.0, 300.0, (2,), 11),
    ((9, 7), 16, 1.0, 3.0, (), 12),
    ((2, 5, 3), 16, 0.0, 2.0, (), 13),
    ((40, 3), 16, -2.0, 2.0, (3, 17), 14),
    ((2, 3), 4, 0.0, 1.0, ((0, 1),), 15),
    ((2, 2), 2, -500.0, 1.0, (0,), 596),
    ((2, 2), 2, 0.0, 1.0, ((0, 1), (1, 1)), 17),
]


def hidden(chance):
    for num_parts in (1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 12, 30):
        heads = (chance.randint(1, 6),) if num_parts % 3 else (2, chance.randint(1, 5))
        yield (num_parts, *heads), *inputs.drawn_parts(chance, num_parts)
    num_parts = chance.randint(2, 9)
    all_parts, two, three = tuple(range(num_parts)), (num_parts, 2), (num_parts, 3)
    yield two, chance.randint(3, 9), 0.0, 1.0, all_parts, chance.randrange(2**31)
    empty = ((chance.randrange(num_parts), chance.randrange(3)),)
    yield three, chance.randint(3, 9), 0.0, 1.0, empty, chance.randrange(2**31)
    head = chance.randrange(3)
    empty = tuple((part, head) for part in all_parts)
    yield three, chance.randint(3, 9), 0.0, 1.0, empty, chance.randrange(2**31)


def arguments(case):
    return dict(zip("oml", inputs.parts(*case), strict=True))


def observe(answer, case):
    return inputs.call_for_parts(answer, **arguments(case))


def describe(case):
    head = counted(case[0][0], "part")
    return inputs.describe_parts(arguments(case), head, "part", *case[:-1])


EXERCISE = exercise(
    globals(),
    tensors,
    reference=tensors.in_double(decode.combine_result),
    size=lambda case: (math.prod(case[0]) * case[1], len(case[4])),
    points=2,
)
