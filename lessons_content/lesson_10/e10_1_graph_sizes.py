"""Exercise 10.1: which batch sizes to record.

Write the sizes down for max_num_seqs=3, for 8 and for 20. Which numbers come from which line
of the docstring?

`range(8, end, 8)` has the multiples of 8 below `end`. Is `end` one of them?

max_num_seqs may be a multiple of 8, or 1, 2 or 4, and then it comes twice. What holds each
number once? And with max_num_seqs=1, what happens to 2 and 4?

Put all of them into a set, keep those that are not above max_num_seqs, and let `sorted` make a
list of them.
"""

import numpy

from lessons_content.exercises.kit import Text, exercise
from lessons_content.exercises.tensors import integer
from paged_attention.engine.fast.graph_sizes import graph_sizes

CASES = [*range(1, 21), 24, 25, 31, 32, 33, 40, 60, 64, 65, 100, 128, 200, 255, 256, 500, 512]


def hidden(chance):
    """Few sequences; then more of them, at a multiple of 8 and after it."""
    yield from chance.sample(range(1, 8), 3)
    for most in (9, 40, 160):
        full = 8 * chance.randint(most // 8 + 1, most)
        yield from (full, full + 1, full + chance.randint(2, 6), full + 7)


def observe(answer, case):
    result = answer(case)
    if isinstance(result, list | tuple):
        return [integer(size) for size in result]
    is_number = hasattr(result, "__index__") and not getattr(result, "shape", ())
    if is_number:
        return int(result)
    kind = "an iterator" if hasattr(result, "__next__") else type(result).__name__
    return Text(f"{kind} instead of a list")


EXERCISE = exercise(
    globals(),
    answer_name="graph_sizes",
    size=lambda case: case,
)
