"""Exercise 10.5: draw for the whole batch.

Take your `sample` of exercise 8.7, from the division on. Which of its lines do for all rows at
once what they do for one, if you give them a dimension? Which need a number of `top_k` in
Python?

`top_k` has one number for each row, and `top_k[:, None]` lines them up with the rows of the
logits. The same goes for the other three.

A slice `[:top_k]` needs a number on the host. Compare instead: `torch.arange` counts the
places of the sorted tokens, and those from top_k on get a logit that makes their probability
0.

At the end, count in each row the running sums that are below the number, times the row's last
sum. That count is a place among the sorted tokens, and `order.gather(1, …)` looks up one place
in each row.
"""

import math
import random
from dataclasses import replace

import torch

from lessons_content.exercises.kit import changed, exercise
from lessons_content.lesson_08 import draws
from lessons_content.lesson_08.draws import MANY, RARE
from lessons_content.lesson_10 import rows
from lessons_content.lesson_10.rows import batch, row

LAST = 2.0**-53  # the last bit of a random number
INF, NAN = math.inf, math.nan
EVEN = tuple((token * 7 % 800 - 400) / 512 for token in range(800))
TWO, FOUR = (0.5, 0.5), (1.5, 1.5, 1.5, 1.5)
SIX, EIGHT = (
    (0.1, 0.3, 0.0, 0.2, -0.1, 0.4),
    (-1.97, -3.1, -1.08, -3.0, -2.3, -1.2, -3.2, -2.12),
)
THREE = (0.3, 0.1, 0.2)
FLAT = (0.3, 0.2, 0.1, 0.0)
CASES = [
    batch(row(0.5, number=0.25)),
    batch(row(0.5), row(-3.0, temperature=4.0, top_p=0.01)),
    *(batch(row(*TWO, number=number)) for number in (0.0, 0.5, 0.5 + LAST, 1 - LAST)),
    batch(row(*TWO, top_p=0.5, number=1 - LAST)),
    batch(row(*TWO, top_p=0.5 + LAST, number=1 - LAST)),
    batch(row(*FOUR, top_p=0.5, number=0.5), row(*FOUR, top_p=0.5, number=0.5 + LAST)),
    batch(row(*FOUR, top_p=0.75, number=1 - LAST), row(*FOUR, top_k=2, number=0.5)),
    batch(row(-INF, 0.5, 0.5, number=0.0), row(0.5, -INF, 0.5, number=1 - LAST)),
    # as many rows as tokens, which differ in one thing
    batch(*(row(*THREE, temperature=each) for each in (0.1, 4.0, 1.0))),
    batch(*(row(*THREE, top_k=each) for each in (3, 1, 2))),
    batch(*(row(*THREE, top_p=each) for each in (1.0, 0.1, 0.6))),
    batch(*(row(*THREE) for _ in range(3)), seed=4),
    batch(row(*THREE), row(0.5, NAN, 0.1), row(-INF, 0.2, 0.2)),
    batch(row(*THREE), row(0.5, INF, 0.1), row(-INF, -INF, -INF), row(INF, NAN, -INF)),
    batch(row(0.3, 0.8, 0.8), row(0.8, 0.3, 0.8, top_k=1), times=3),
    batch(row(*FLAT, top_k=2, top_p=0.5), row(*FLAT, top_k=3, top_p=0.6), times=3),
    batch(row(*FLAT, temperature=0.1, top_p=0.7), row(*FLAT, temperature=5.0), times=3),
    batch(row(*SIX), row(*SIX, temperature=0.2), times=3),
    batch(row(*SIX, top_k=2, top_p=0.99), row(*SIX, top_k=6, top_p=1e-6), times=2),
    batch(row(*EIGHT, top_k=5, top_p=0.5), row(*EIGHT, top_k=3, top_p=0.7), times=3),
    batch(row(*EIGHT, temperature=3.0, top_p=0.6), row(*EIGHT, temperature=0.3), times=3),
    batch(row(4.0, 0.0, 4 * RARE, 1.0, temperature=4.0), row(RARE, 1.2, 0.7, RARE), times=2),
    batch(row(30.0, 60.0, 59.6, temperature=0.01), row(-900.5, -900.0, -900.4), times=2),
    batch(row(*THREE), row(-900.5, -900.0, -900.9, temperature=0.005, top_k=2)),
    batch(row(900.0, 900.5, 899.0, 900.2), row(-9e4, -9e4, -8e4, -INF), row(*FOUR), times=2),
    batch(row(*SIX), row(*SIX, top_k=3, top_p=0.8), times=3, dtype=torch.float16),
    batch(row(*SIX), row(*SIX, temperature=0.4), times=3, dtype=torch.float64),
    batch(row(*EVEN), row(*EVEN, top_p=0.8), times=3, dtype=torch.bfloat16),
    batch(
        row(*EVEN, temperature=0.3), row(*EVEN, temperature=3.0), times=3, dtype=torch.bfloat16
    ),
    batch(row(*EVEN, top_k=500), row(*EVEN, temperature=5.0), times=3, dtype=torch.float16),
    batch(row(*MANY, temperature=2.0, top_k=4, top_p=0.7), row(*MANY), times=4),
    # float32 has no place for the second probability, nor for the difference of the logits
    batch(row(0.0, -20.0, number=1 - 2e-10)),
    batch(row(1.0, 1.0 + 1e-12, number=0.0), dtype=torch.float64),
    batch(row(*SIX, top_k=3), row(*SIX, top_p=0.8), elsewhere=True),
]


def hidden(chance):
    """The same tokens in another order, other numbers, and all a little higher or lower."""
    for known in CASES:
        shift = chance.choice((-1, 1)) * chance.randint(1, 25) / 100
        rows = [
            replace(
                each,
                logits=tuple(
                    round(logit + shift, 5)
                    for logit in chance.sample(each.logits, len(each.logits))
                ),
            )
            for each in chance.sample(known.rows, len(known.rows))
        ]
        yield batch(*rows, dtype=known.dtype, seed=chance.random(), elsewhere=known.elsewhere)


EXERCISE = exercise(
    globals(),
    rows,
    answer_name="draw_tokens",
    size=lambda case: (len(case.rows) * len(case.rows[0].logits), len(case.rows)),
    # It finds tensors of two devices, whatever else is wrong.
    chancy=lambda case: case.elsewhere,
)
