"""Exercise 10.6: what is not there yet.

When this step is complete, how many of a request's tokens are computed? Count that first.
Everything else is asked about the request as it is then.

`request.num_uncomputed` says how many tokens are left to compute. In which case does the
model's answer give a new token, and in which is the next one known already?

Take a request with max_new_tokens=3 and two tokens in its `output`. Will it go on after the
token that it gets in this step? And how do you ask that of any request?

A next token is appended to `request.tokens`. There are two conditions: nothing is left to
compute, and `len(request.output)`, with the new token, is not the most that it may have.
"""

import copy

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_10 import watched_requests
from lessons_content.lesson_10.parts import again, chunk, decode, in_words, random_part, size
from paged_attention.engine.fast.ahead import PENDING, expect_tokens

CASES = [
    (),
    (decode(2, 1),),
    (decode(1, 1),),
    (decode(3, 2),),
    (chunk(1, 0, 1),),
    (chunk(3, 0, 3),),
    (chunk(4, 0, 2),),
    (chunk(4, 0, 3),),
    (chunk(5, 0, 1),),
    (chunk(5, 2, 2),),
    (chunk(5, 2, 3),),
    (chunk(5, 4, 1),),
    (again(2, 3, 0, 5),),
    (again(2, 3, 0, 2),),
    (again(2, 3, 0, 3),),
    (again(2, 3, 2, 2),),
    (again(2, 3, 3, 2),),
    (again(2, 4, 3, 2),),
    (chunk(3, 0, 3, most=1),),
    (chunk(3, 0, 1, most=1),),
    (chunk(3, 0, 3, most=2),),
    (chunk(3, 0, 3, most=3),),
    (chunk(4, 2, 2, most=2),),
    (chunk(3, 0, 3, most=4),),
    (chunk(8, 0, 8, most=6),),
    (decode(3, 2, most=3),),
    (decode(3, 2, most=4),),
    (decode(3, 2, most=5),),
    (decode(3, 2, most=6),),
    (again(2, 3, 0, 5, most=4),),
    (again(2, 3, 0, 4, most=4),),
    (again(2, 3, 0, 5, most=5),),
    (decode(2, 1, ignore_end=True),),
    (decode(2, 2, most=3, ignore_end=True),),
    (decode(2, 2, most=4, ignore_end=True),),
    (decode(2, 1), decode(3, 2)),
    (chunk(5, 0, 2), decode(2, 1)),
    (decode(2, 1, most=2), decode(2, 1)),
    (decode(2, 1), decode(2, 1, most=2)),
    (decode(2, 1), chunk(5, 2, 2), chunk(3, 1, 2), again(1, 3, 0, 4, most=4), decode(4, 1)),
]


def hidden(chance):
    """One to five requests."""
    for number in range(20):
        yield tuple(random_part(chance) for _ in range(1 + number // 4))


EXERCISE = exercise(
    globals(),
    watched_requests,
    answer_name="expect_tokens",
    describe=in_words,
)
