"""Exercise 6.3: maximum and sum over a block.

There are two steps. First the 32 threads of each warp combine their values with shuffles.
After five shuffles every lane knows the result of its warp. Then combine the results of the
warps.

`__shfl_xor_sync(0xffffffff, value, distance)` gives the value of another lane: its number
differs in one bit. With the distances 16, 8, 4, 2 and 1, every lane has met all others.

One lane of each warp writes the warp's result to shared memory. When all have written, every
thread can read all the results, at most 32, and combine them itself.

Think of the next call: which threads might still be reading what it writes?
"""

import math

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_06 import reductions

# (blocks, rounds, threads, shift): shift moves all values below or above 0
CASES = [
    (1, 1, 32, 5.0),
    (1, 1, 64, 5.0),
    (1, 1, 128, 0.0),
    (1, 1, 32, -5.0),
    (1, 1, 96, 0.0),
    (1, 1, 128, -5.0),
    (1, 2, 32, 0.0),
    (1, 2, 64, 0.0),
    (1, 3, 128, 5.0),
    (2, 2, 96, -5.0),
    (1, 1, 256, 0.0),
    (1, 2, 416, 0.0),
    (1, 2, 1024, -5.0),
]


def hidden(chance):
    """The numbers of threads with which the course calls it, and others."""
    for threads in (128, 256, *chance.sample(range(32, 800, 32), 8)):
        blocks, rounds = chance.randint(1, 2), chance.randint(1, 3)
        yield blocks, rounds, threads, chance.choice((-6.0, -4.5, 0.0, 0.5, 4.5, 6.0))


def observe(subject, case):
    blocks, rounds, threads, shift = case
    generator = torch.Generator().manual_seed(threads + rounds)
    values = torch.randn(blocks, rounds, threads, generator=generator).clamp(-4, 4) + shift
    return kernels.result_of(lambda: subject(values), parts=("block_max()", "block_sum()"))


def describe(case):
    blocks, rounds, threads, shift = case
    kind = "" if not shift else ", all values below 0" if shift < 0 else ", all values above 0"
    calls = "" if rounds == 1 else f", each called {rounds} times in a row"
    grid = "" if blocks == 1 else f"{counted(blocks, 'block')} of "
    return (
        f"{grid}{counted(threads, 'thread')}{kind}{calls}; "
        "the result for each (block, call, thread)"
    )


EXERCISE = exercise(
    globals(),
    reductions,
    kernels,
    answer_name="block_reduce",
    size=lambda case: math.prod(case[:3]),
    points=2,
)
