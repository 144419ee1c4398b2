"""Exercise 5.1: where each sequence's queries begin.

For three sequences with 5, 1 and 4 queries: in which row does the first one begin, in which
the second, the third, and in which row would a fourth one begin?

A running sum gives all the ends. What is missing in front of it? And which dtype does your sum
have?
"""

from itertools import accumulate

from lessons_content.exercises.kit import Text, exercise, tensors
from paged_attention.attention.metadata import cumulative_lengths

CASES = [(1,), (3,), (2, 3), (1, 1, 1), (5, 1, 1, 4), (1, 16, 17, 15)]
CASES += [(40_000, 1, 40_000), tuple(range(1, 30))]


def hidden(chance):
    for length in (1, 2, 2, 3, 4, 5, 8, 20):
        yield tuple(chance.choices((1, 1, *range(2, 60)), k=length))
    yield chance.randint(33_000, 90_000), chance.randint(1, 9), chance.randint(33_000, 90_000)


def observe(answer, case):
    query_lens = list(case)
    result = tensors.values(answer(query_lens))
    if query_lens != list(case):
        return Text(f"the caller's list is changed to {query_lens}")
    return result


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="cumulative_lengths",
    size=lambda case: (len(case), sum(case)),
    describe=lambda case: f"cumulative_lengths({list(case)})",
)
