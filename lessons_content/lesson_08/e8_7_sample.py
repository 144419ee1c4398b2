"""Exercise 8.7: draw a token.

Begin with temperature 0: one line, and the division below is safe.

Sort the logits once, the largest first, and keep the order that the sort gives: top_k and
top_p both cut off the end. `stable=True` leaves equal ones as they are.

For top_p, ask of each token: do those before it reach top_p already? Then it is not needed.
The running sum is `cumsum`.

Imagine the probabilities that are left as pieces of a line, side by side. The random number,
times the length of the line, is a point on it. In which piece does it lie? How many running
sums are below it?
"""

import math
import random

import numpy as np
import torch

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_08 import drawn_tokens, draws
from lessons_content.lesson_08.drawn_tokens import SEEDS, case_of
from lessons_content.lesson_08.draws import MANY, RARE
from paged_attention.engine.draws import draw_number

RARE_TOKENS = tuple((token - 20) / 100 for token in range(40))
# Each case has many seeds and positions, so that each part of the probabilities decides some
# of its tokens. No random number is close to a limit between two tokens, and top_p is close to
# no sum (see draws.py).
#
# Each token that may be drawn has a probability of 0.17 or more, and comes up. Those that may
# not would come up as well. In one case, 40 tokens are rare and together would not be, if the
# draws were more even. Of many equal logits, PyTorch's plain sort keeps the order on some
# processors and not on others. So no case has more than three.
CASES = [
    case_of(0.5, 1.0, 0.0, temperature=0.0),
    case_of(-1.2, -1.0, -1.5, temperature=0.0),
    case_of(0.5, 0.50001, 0.5, temperature=0.0),
    case_of(1.0, 3.0, 2.5, 0.0, temperature=0.0, top_k=2, top_p=0.5),
    case_of(0.0, 0.0, top_p=0.5),
    case_of(0.3, 0.8, 0.8),
    case_of(0.1, 0.3, 0.0, 0.2, -0.1),
    case_of(RARE, 1.2, RARE, 0.7, 0.3, RARE),
    case_of(4.0, 0.0, 4 * RARE, 1.0, temperature=4.0),
    case_of(-3.0, -1.8, -2.5, -1.6, -1.9, -2.3, -3.5, -2.7, -2.2, -3.2, top_p=0.3),
    case_of(-1.6, -2.3, -0.9, -1.2, top_p=0.01),
    case_of(1.5, 2.0, 1.1, 1.7, 1.4, 1.9, 1.3, 1.2, top_k=2, top_p=0.99),
    case_of(0.4, 0.2, 0.6, top_k=1),
    case_of(0.4, 1.0, 0.3, RARE, top_k=9),
    case_of(-2.3, -1.4, -2.7, -1.8, -1.6, -2.2, -2.5, -3.2, top_k=3, top_p=0.7),
    case_of(-1.97, -3.1, -1.08, -3.0, -2.3, -1.2, -3.2, -2.12, top_k=5, top_p=0.5),
    case_of(4.5, 6.0, 3.0, 4.8, temperature=3.0, top_p=0.8),
    case_of(-math.inf, 0.3, 0.0, -math.inf, RARE / 2, temperature=0.5),
    case_of(30.0, 60.0, 59.6, 0.0, temperature=0.01),
    case_of(-900.5, -900.0, -900.4, temperature=0.01),
    case_of(900.0, 900.5, 900.25, 899.0, temperature=0.9),
    case_of(*RARE_TOKENS[:25], 6.0, *RARE_TOKENS[25:]),
    case_of(*MANY, temperature=2.0, top_k=4, top_p=0.7),
]


def hidden(chance):
    """The same in another order, with other seeds, and all a little higher or lower."""
    for known in CASES:
        shift = chance.choice((-1, 1)) * chance.randint(1, 25) / 100
        logits = chance.sample(known.logits, len(known.logits))
        seeds = tuple(chance.randrange(2**64) for _ in SEEDS)
        own = {name: getattr(known.params, name) for name in ("temperature", "top_k", "top_p")}
        yield case_of(*(round(logit + shift, 5) for logit in logits), seeds=seeds, **own)


EXERCISE = exercise(
    globals(),
    drawn_tokens,
    answer_name="sample",
    size=lambda case: len(case.logits),
)
