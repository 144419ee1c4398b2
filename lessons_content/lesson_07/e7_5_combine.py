"""Exercise 7.5: combine the parts in a kernel.

Each thread does the whole of lesson 04's combine_result for one number of the output: the
largest m over the parts, their weights, the weighted mean. All threads of a block compute the
same weights.

There are gridDim.x * gridDim.y rows. This block's row has the number blockIdx.x * gridDim.y +
blockIdx.y. Part `split` of that row has the number split * rows + row among all parts.

A part without a token has m = -INFINITY. Its weight is 0. Make sure that it is, even if the
largest m is -INFINITY too. And make sure that you do not divide by a sum of weights that is 0.
"""

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_07 import split_parts
from lessons_content.lesson_07.split_parts import Case, OneLongPart

CASES = [
    Case(1, 1, 1),
    Case(2, 1, 1, spread=0.0),
    Case(2, 1, 1, seed=2),
    Case(3, 1, 1, level=-3.0, seed=3),
    Case(3, 1, 2, seed=4),
    Case(2, 2, 3, seed=5),
    Case(2, 1, 1, empty=(1,), seed=6),
    Case(3, 1, 2, empty=(1,), seed=17),
    Case(3, 1, 2, empty=(0,), seed=7),
    Case(2, 1, 1, empty=(0, 1), seed=8),
    Case(2, 1, 1, level=500.0, seed=9),
    Case(2, 1, 2, level=-150.0, seed=10),
    Case(2, 1, 2, level=-500.0, seed=14),
    Case(3, 2, 2, spread=60.0, empty=((2, 1, 0), (0, 0, 1)), seed=11),
    Case(9, 2, 2, spread=3.0, seed=12),
    Case(4, 2, 3, empty=((0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)), seed=13),
    Case(1, 2, 1, seed=15, dtype=torch.bfloat16),
    Case(3, 2, 3, seed=16, dtype=torch.bfloat16),
    OneLongPart(61, 1, 1, level=1.0, spread=0.0, seed=18, dtype=torch.bfloat16),
]


# levels and spreads of hidden cases
NEAR = ((0.0, 1.0), (-3.0, 2.0), (500.0, 1.0), (-150.0, 1.0), (-400.0, 1.0), (0.0, 60.0))


def hidden(chance):
    """Parts near 0 and far from it, some without a token; whole splits, and all of a row."""
    for number in range(14):
        shape = chance.randint(2, 7), chance.randint(1, 3), chance.randint(1, 4)
        level, spread = chance.choice(NEAR)
        num_empty = chance.choice((0, 0, 1, 2))
        places = [tuple(map(chance.randrange, shape)) for _ in range(num_empty)]
        empty = tuple(dict.fromkeys(places))
        if number == 12:
            empty = tuple(sorted(chance.sample(range(shape[0]), shape[0] - 1)))
        elif number == 13:
            empty = tuple((split, shape[1] - 1, shape[2] - 1) for split in range(shape[0]))
        dtype = torch.bfloat16 if number % 4 == 3 else torch.half
        yield Case(*shape, level, spread, empty, chance.randrange(2**31), dtype)
    num_splits, drawn = chance.randint(60, 64), chance.randrange(2**31)
    yield OneLongPart(num_splits, 1, 1, spread=0.0, seed=drawn, dtype=torch.bfloat16)


EXERCISE = exercise(
    globals(),
    split_parts,
    kernels,
    answer_name="combine_parts",
    observe=kernels.observing("out", "part_o"),
    size=lambda case: (case.num_splits * case.num_seqs * case.num_q_heads, len(case.empty)),
    points=2,
)
