"""Exercise 6.1: one thread for each element.

Number the threads of the whole grid from 0. The first block has the numbers 0 to
blockDim.x - 1. Where does the second block begin? Where does block number blockIdx.x begin?

That number is the thread's element, if such an element exists: n need not be a multiple of the
block size.

Take enough blocks that blocks * threads is at least n, and not a whole block more. 1 element
takes 1 block, 256 take 1, 257 take 2.
"""

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_06 import additions
from lessons_content.lesson_06.additions import LONGEST, MOST_THREADS, TRACED

LENGTHS = (1, 2, 64, 128, 255, 256, 257, 512, 513, 1024, 1025, TRACED, LONGEST)
CASES = [(n, seed) for seed, n in enumerate(LENGTHS)]


def hidden(chance):
    """A few elements, lengths around whole blocks of 256, one that 256 blocks cannot do."""
    beyond = (0, 0, 1, -1, 128, chance.randrange(256))
    around = (256 * chance.randint(3, 10) + more for more in beyond)
    for n in (chance.randint(3, 254), *around, 256 * MOST_THREADS + chance.randint(2, 900)):
        yield n, chance.randrange(2**31)


def observe(subject, case):
    n, seed = case
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, generator=generator)
    return kernels.result_of(lambda: subject(a, b))


EXERCISE = exercise(
    globals(),
    additions,
    kernels,
    answer_name="vector_add",
    size=lambda case: case[0],
    # the longest is for one mistake; others look different there
    chancy=lambda case: case[0] > TRACED,
    describe=lambda case: f"vectors of {counted(case[0], 'element')}",
    # a million threads in each case take a few seconds, and more on a busy machine
    time_limit=60.0,
)
