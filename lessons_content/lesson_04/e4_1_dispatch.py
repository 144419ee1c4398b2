"""Exercise 4.1: repeat each query for its blocks.

Write the wanted rows for request_num_blocks = [3, 1, 2] on paper: whose query is in row 0, 1,
2, 3, 4, 5?

PyTorch has two functions that repeat. One lays the whole tensor down again and again, the
other repeats each row on the spot.

The one you want takes a tensor of counts, and a `dim`.
"""

import math

import torch

from lessons_content.exercises.kit import Text, exercise, named_where, tensors
from lessons_content.lesson_04.inputs import call, generator, listed
from paged_attention.attention import decode

FEW = 12  # numbers of q that a message shows
LOST = -1  # as a seed: one query is infinite, and no other request's rows are
# (blocks of each request, query heads, head size, seed), and the dtype of q if another one is
# asked for
CASES = [
    ((1,), 1, 2, 0),
    ((2,), 1, 2, 1),
    ((1, 1), 1, 2, 2),
    ((3, 1), 1, 2, 3),
    ((2, 2), 1, 2, 4),
    ((3, 1, 2), 1, 2, 5),
    ((0,), 1, 2, 6),
    ((0, 2), 2, 2, 7),
    ((2, 0, 1), 1, 2, 8),
    ((3, 1, 2), 3, 4, 9),
    ((1, 4, 0, 2), 7, 3, 10),
    ((2, 2, 2), 3, 4, 11),
    ((5, 0, 0, 1, 3), 5, 16, 12),
    ((0, 0), 2, 4, 13),
    ((17, 1, 30, 0, 2), 3, 8, 14),
    ((2, 1), 2, 2, 15, "float64"),
    ((2, 1, 1), 1, 2, LOST),
]


def hidden(chance):
    def about_q():
        return chance.randint(1, 6), chance.randint(2, 12), chance.randrange(2**31)

    for length in (1, 2, 2, 3, 3, 4, 5, 6, 7, 9):
        counts = (chance.randint(2, 20), *chance.choices(range(6), k=length - 1))
        yield tuple(chance.sample(counts, length)), *about_q()
    yield (0,) * chance.randint(1, 5), *about_q()
    counts = chance.randint(1, 9), chance.randint(1, 9)
    yield counts, *about_q(), chance.choice(("float16", "float64"))


def query(case):
    """Simple numbers where there are few."""
    counts, num_heads, head_size, seed, *dtype = case
    shape = len(counts), num_heads, head_size
    if math.prod(shape) <= FEW:
        q = torch.arange(1.0, 1 + math.prod(shape)).view(shape)
        q[1:2] = math.inf if seed == LOST else q[1:2]
    else:
        q = torch.randn(shape, generator=generator(seed))
    return q.to(getattr(torch, dtype[0])) if dtype else q


def observe(answer, case):
    def result():
        rows = call(answer, q=query(case), request_num_blocks=torch.tensor(case[0]))
        if not case[4:] or not isinstance(rows, tensors.Values):
            return rows
        return rows, Text(f"dtype {rows.tensor.dtype}")

    return named_where(sum(case[0]) == 0, result)


def describe(case):
    q = query(case)
    words = listed(q=q) if q.numel() <= FEW else f"q of shape {tuple(q.shape)}"
    dtype = f" in {case[4]}" if case[4:] else ""
    return f"{words}{dtype}, request_num_blocks = {list(case[0])}"


EXERCISE = exercise(
    globals(),
    tensors,
    reference=decode.dispatch,
    size=lambda case: (len(case[0]) * case[1] * case[2], sum(case[0]) or 3, len(case)),
)
