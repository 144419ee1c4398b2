"""Exercise 4.5: combine the parts of all requests at once.

The steps are those of `combine_result`. What changes is the maximum and the two sums: each
runs over the rows of one request.

First make a tensor that says for each row which request it belongs to. Exercise 4.1 had
something like it.

`index_add` adds rows into the row that an index names, and `scatter_reduce` with "amax" takes
maxima. What does each of them start from?

To subtract a request's maximum from each of its rows, index the maxima with the same tensor.
"""

import torch
from torch.overrides import TorchFunctionMode

from lessons_content.exercises.kit import Alike, Text, exercise, named_where, tensors
from lessons_content.lesson_04 import inputs
from paged_attention.attention import decode

CALLS = "calls"
MOST_CALLS = 3  # of PyTorch's functions for each of many requests; ours are 20 in all


class Looped(Alike):
    """The result of an answer that combines one request after the other."""


class Counting(TorchFunctionMode):
    """Counts the calls of PyTorch's functions."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


# (blocks of each request, heads, head size, level of the maxima, their spread, the blocks that
# saw no key, seed), and CALLS where only the number of calls counts
CASES = [
    ((1,), 1, 2, 0.0, 1.0, (), 0),
    ((2,), 1, 2, 0.0, 1.0, (), 101),
    ((1, 1), 1, 2, 0.0, 1.0, (), 222),
    ((2, 1), 1, 2, 0.0, 1.0, (), 3),
    ((2, 2), 2, 2, -2.0, 0.5, (), 4),
    ((3, 1, 2), 2, 4, 0.0, 2.0, (), 5),
    ((0,), 1, 2, 0.0, 1.0, (), 6),
    ((2, 0), 1, 2, 0.0, 1.0, (), 1627),
    ((0, 3, 0, 1), 3, 4, 0.0, 1.0, (), 8),
    ((2, 1), 1, 2, 0.0, 1.0, (1,), 9),
    ((1, 2), 1, 2, 0.0, 1.0, (0,), 450),
    ((2, 3), 2, 4, -500.0, 1.0, (), 11),
    ((2, 3), 2, 4, 500.0, 1.0, (), 12),
    ((3, 2), 2, 4, 0.0, 300.0, (), 13),
    ((4, 0, 9, 1, 5), 7, 16, -1.0, 3.0, (2, 13), 14),
    ((0, 0), 2, 4, 0.0, 1.0, (), 15),
    ((2, 1), 2, 4, -500.0, 1.0, (0,), 16),
    ((1, 2) * 100, 1, 2, 0.0, 1.0, (), 17, CALLS),
]


def hidden(chance):
    for num_requests in (1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 9):
        counts = chance.choices((0, 1, 2, 3, 7), k=num_requests)
        yield tuple(counts), chance.randint(1, 6), *inputs.drawn_parts(chance, sum(counts))
    many = tuple(chance.choices((1, 2, 3), k=chance.randint(150, 250)))
    yield many, chance.randint(1, 6), 4, 0.0, 1.0, (), chance.randrange(2**31), CALLS


def arguments(case):
    counts, num_heads, *about = case[:7]
    o, m, l = inputs.parts((sum(counts), num_heads), *about)
    return {"o": o, "m": m, "l": l, "request_num_blocks": torch.tensor(counts)}


def observe(answer, case):
    given = arguments(case)
    if not counts_calls(case):
        return named_where(0 in case[0], lambda: inputs.call_for_parts(answer, **given))
    with Counting() as counting:
        answer(*given.values())
    if counting.calls <= MOST_CALLS * len(case[0]):
        return Text("few calls of PyTorch's functions, however many requests there are")
    return Looped(f"{counting.calls:,} calls of PyTorch's functions for these requests")


def counts_calls(case):
    """For `Exercise.chancy`: a loop says nothing about other mistakes."""
    return case[7:] == (CALLS,)


def describe(case):
    counts, num_heads, *about = case[:6]
    if counts_calls(case):
        return f"{len(counts)} requests with {sum(counts)} blocks in all"
    head, shape = f"request_num_blocks = {list(counts)}", (sum(counts), num_heads)
    return inputs.describe_parts(arguments(case), head, "block", shape, *about)


EXERCISE = exercise(
    globals(),
    tensors,
    reference=tensors.in_double(decode.combine_segments),
    size=lambda case: ((sum(case[0]) or 2) * case[1] * case[2], len(case[0]), len(case[5])),
    points=2,
    chancy=counts_calls,
)
