"""Exercise 6.1: one thread for each element."""

import contextlib
import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import (
    STREAM,
    asked,
    build,
    check_streams,
    result_of,
    show,
)
from lessons_exercises.mistakes import Bank
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise
from lessons_lib.cuda_on_cpu.reports import KernelError

MOST_THREADS = 1024  # in a block
# elements, more than 1024 blocks have; the launcher is asked for its launch, which is not run
MANY = 2_000_000
MOST_TO_SPARE = 2**20  # threads without an element, in a launch that the check waits for
TRACED = 3000  # elements; to note the writer of each one would take too long for more
LENGTHS = (1, 2, 64, 128, 255, 256, 257, 512, 513, 1024, 1025, TRACED, 256 * MOST_THREADS + 1)


def add(a, b):
    return (a.double() + b.double()).float()


def prepare(answer):
    library = build(answer)
    wasteful = what_is_wasted(library)

    def run(a, b):
        out = torch.empty_like(a)
        stream = STREAM if len(a) % 2 else 0
        with library.launches(stream=stream) as launches:
            library.add(a, b, out, len(a))
        check_streams(launches, stream)
        return out, launches

    def native(a, b):
        if wasteful:
            raise KernelError(*wasteful)
        try:
            out, launches = run(a, b)
        except KernelError as error:
            if error.kind == "output-unwritten" and len(a) <= TRACED:
                error.kind = why_unwritten(error, library, a, b)
            raise
        if launch_for(library, len(a)).returned == 0:
            raise KernelError(
                "The launch was made to fail, and the launcher returned 0.",
                "error-not-returned",
            )
        if len(a) > TRACED:
            look_at_fixed_grid(library, run)
            look_for_one_block(launches, len(a))
        return out

    return native


def launch_for(library, n):
    """What the launcher asks for, for n elements.

    Nothing runs, so it does not matter that the tensors have only one.
    """
    number = torch.zeros(1)
    return asked(library, lambda: library.add(number, number, torch.empty(1), n))


def threads_of(launches):
    return sum(math.prod((*launch.grid, *launch.block)) for launch in launches)


def what_is_wasted(library):
    """Message and kind of a launch with far too many threads, which would never end.

    It is looked at for one element and for two million, which may have two threads each.
    """
    one, many = launch_for(library, 1), launch_for(library, MANY)
    spare = max(threads_of(one) - 1, threads_of(many) - 2 * MANY)
    if not (one and many) or spare <= MOST_TO_SPARE:
        return None
    fixed = one[0].grid == many[0].grid
    words = (
        f"For a vector of {counted(1 if fixed else MANY, 'element')} the launch asks "
        f"for {threads_of(one if fixed else many):,} threads."
    )
    return words, "number-of-blocks-fixed" if fixed else "a-block-for-each-element"


def look_at_fixed_grid(library, run):
    """A launch that is the same for every length needs a loop in the kernel.

    The loop must do one element more than there are threads.
    """
    one, many = launch_for(library, 1), launch_for(library, MANY)
    if not (one and many) or one[0].grid != many[0].grid:
        return
    n = threads_of(many) + 1
    if n > LENGTHS[-1]:
        a, b = torch.ones(2, n)
        run(a, b)


def look_for_one_block(launches, n):
    """One block at a time leaves the rest of the GPU empty."""
    if all(math.prod(launch.grid) == 1 for launch in launches):
        raise KernelError(
            f"{launches[0].kernel} was launched in one block, for {n:,} elements too.",
            "one-block-in-a-loop",
        )


def why_unwritten(error, library, a, b):
    """A more exact kind for elements that were not written.

    There was no thread to do it, or only a single block.
    """
    if "launched no kernel" in str(error):
        return "nothing-launched"
    with library.trace("out") as accesses, contextlib.suppress(KernelError):
        library.add(a, b, torch.empty_like(a), len(a))
    return (
        "unwritten-by-one-block"
        if len({access.block for access in accesses}) == 1
        else error.kind
    )


def cases():
    """The last one is so long that 256 blocks cannot do it, however many threads they have."""
    yield from ((n, seed) for seed, n in enumerate(LENGTHS))


def hidden(seed):
    """A few elements, then lengths around whole blocks of 256.

    At the end, one that 256 blocks cannot do.
    """
    chance = random.Random(seed)
    around = (
        256 * chance.randint(3, 10) + more
        for more in (0, 0, 1, -1, 128, chance.randrange(256))
    )
    for n in (chance.randint(3, 254), *around, 256 * MOST_THREADS + chance.randint(2, 900)):
        yield n, chance.randrange(2**31)


def observe(subject, case):
    n, seed = case
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, generator=generator)
    return result_of(lambda: subject(a, b))


EXERCISE = Exercise(
    id="6.1",
    title="one thread for each element",
    answer_name="vector_add",
    language="cuda",
    reference=add,
    prepare=prepare,
    cases=cases,
    size=lambda case: case[0],
    hidden=hidden,
    observe=observe,
    # the longest is for one mistake; others look different there
    chancy=lambda case: case[0] > TRACED,
    describe=lambda case: f"vectors of {counted(case[0], 'element')}",
    same=tensors.same,
    show=show,
    # a million threads in each case take a few seconds, and more on a busy machine
    time_limit=60.0,
    mistakes=Bank("6.1", "vector_add", __file__, globals(), prepare),
    hints=(
        (
            "Number the threads of the whole grid from 0. "
            "The first block has the numbers 0 to blockDim.x - 1. "
            "Where does the second block begin? Where does block number blockIdx.x begin?"
        ),
        (
            "That number is the thread's element, if such an element exists: "
            "n need not be a multiple of the block size."
        ),
        (
            "Take enough blocks that blocks * threads is at least n, "
            "and not a whole block more. 1 element takes 1 block, 256 take 1, 257 take 2."
        ),
    ),
)
