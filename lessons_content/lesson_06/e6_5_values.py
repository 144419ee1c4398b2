"""Exercise 6.5: softmax and values.

The softmax takes three rounds over a thread's own tokens: t, t + blockDim.x and so on. Find
the largest score. Make weights and add them up. Divide. After the first and the second round
the threads combine their results.

A thread without a token takes part in block_max() and block_sum() as well. What does it bring,
so that it changes nothing?

In pass 2 each thread takes an element of the head and goes through all tokens. Its sum is in
its own variable, so there is nothing to share and nothing to wait for.

Without a token, the loop over the tokens does nothing. Is the output written all the same?
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_06 import batches, value_kernel
from lessons_content.lesson_06.batches import Case, FarCase, drawn
from lessons_content.lesson_06.value_kernel import THREADS, SimilarValues

CASES = [
    Case((1,), 1, 1, 1, 4),
    Case((1,), 1, 1, 4, 4),
    Case((3,), 1, 1, 4, 4),
    Case((4, 5), 2, 2, 8, 4),
    Case((0,), 1, 1, 8, 4),
    Case((0, 3, 9), 6, 2, 8, 4),
    Case((6,), 1, 1, 8, 4, shift=200.0),
    Case((6,), 1, 1, 8, 4, shift=-200.0),
    Case((6,), 1, 1, 8, 4, shift=-20_000.0, spread=0.0),
    Case((8, 2), 7, 1, 12, 4, workspace=True),
    Case((2, 17, 16), 4, 4, 16, 16, dtype=1),
    Case((7, 4), 6, 3, 8, 3, seed=1, dtype=2),
    Case((128, 127), 2, 1, 8, 16),
    Case((129, 300), 2, 2, 8, 16, spread=3.0, workspace=True),
    Case((20, 6), 3, 1, 200, 8),
    Case((2,), 2, 2, 256, 4, dtype=1),
    Case((11, 140), 6, 2, 8, 16, spare_context=30),
    SimilarValues((600,), 1, 1, 2, 16, dtype=2),
    batches.FAR,
]


def hidden(chance):
    """As those of the scores; also with scores in a workspace, or far from 0."""
    yield from (drawn(chance, workspace=number % 3 == 0) for number in range(9))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
    for shift in (200.0, -200.0):
        yield drawn(chance, context_lens=(chance.randint(3, 9),), dtype=0, shift=shift)
    length, shift = chance.randint(3, 9), -20_000.0 - chance.randint(1, 99)
    yield Case((length,), 1, 1, 8, 4, shift=shift, spread=0.0)
    length, seed = chance.randint(560, 640), chance.randrange(2**31)
    yield SimilarValues((length,), 1, 1, 2, 16, dtype=2, seed=seed)
    yield from batches.drawn_extremes(chance)


def chancy(case):
    """Whether mistakes that other cases find may be right here, or give anything.

    If all threads have something to do, a call in a branch happens to be right.
    """
    is_long = max(case.context_lens) >= THREADS or case.head_size > THREADS
    return is_long or isinstance(case, FarCase)


EXERCISE = exercise(
    globals(),
    value_kernel,
    kernels,
    batches,
    answer_name="paged_values",
    reference=batches.attention,
    observe=batches.observing("out", "v_cache"),
    describe=lambda case: case.describe("the output for each (sequence, head, element)"),
    points=2,
)
