"""A learner's kernel that adds vectors, as a function of tensors, for 6.1."""

import contextlib
import math

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted

MOST_THREADS = 1024  # in a block
# elements, more than 1024 blocks have; the launcher is asked for its launch, which is not run
MANY = 2_000_000
MOST_TO_SPARE = 2**20  # threads without an element, in a launch that the check waits for
TRACED = 3000  # elements; to note the writer of each one would take too long for more
# so long that 256 blocks cannot do it, however many threads they have
LONGEST = 256 * MOST_THREADS + 1


def reference(a, b):
    return (a.double() + b.double()).float()


def prepare(answer):
    library = kernels.build(answer)
    one, many = launch_for(library, 1), launch_for(library, MANY)
    is_fixed = bool(one and many) and one[0].grid == many[0].grid
    wasteful = what_is_wasted(one, many, is_fixed)

    def run(a, b):
        out = torch.empty_like(a)
        with kernels.on_stream(library, kernels.STREAM if len(a) % 2 else 0) as launches:
            library.add(a, b, out, len(a))
        return out, launches

    def add_checked(a, b):
        if wasteful:
            raise kernels.KernelError(*wasteful)
        try:
            out, launches = run(a, b)
        except kernels.KernelError as error:
            if error.kind == "output-unwritten" and len(a) <= TRACED:
                error.kind = why_unwritten(error, library, a, b)
            raise
        if launch_for(library, len(a)).returned == 0:
            words = "The launch was made to fail, and the launcher returned 0."
            raise kernels.KernelError(words, "error-not-returned")
        if len(a) > TRACED and is_fixed and threads_of(many) + 1 > LONGEST:
            run(*torch.ones(2, threads_of(many) + 1))  # a loop is there for one more too
        if len(a) > TRACED and all(math.prod(launch.grid) == 1 for launch in launches):
            words = (
                f"{launches[0].kernel} was launched in one block, for {len(a):,} elements too."
            )
            raise kernels.KernelError(words, "one-block-in-a-loop")
        return out

    return add_checked


def launch_for(library, n):
    """The launches that the launcher asks for. Nothing runs, so one element is enough."""
    number = torch.zeros(1)
    return kernels.asked(library, lambda: library.add(number, number, torch.empty(1), n))


def threads_of(launches):
    return sum(math.prod((*launch.grid, *launch.block)) for launch in launches)


def what_is_wasted(one, many, is_fixed):
    """The message and the kind for a launch that would never end, or None.

    It has far too many threads. Two million elements may have two threads each.
    """
    spare = max(threads_of(one) - 1, threads_of(many) - 2 * MANY)
    if not (one and many) or spare <= MOST_TO_SPARE:
        return None
    vector = f"a vector of {counted(1 if is_fixed else MANY, 'element')}"
    words = (
        f"For {vector} the launch asks for {threads_of(one if is_fixed else many):,} threads."
    )
    return words, "number-of-blocks-fixed" if is_fixed else "a-block-for-each-element"


def why_unwritten(error, library, a, b):
    """A more exact kind: there was no thread to write an element, or only a single block."""
    if "launched no kernel" in str(error):
        return "nothing-launched"
    with library.trace("out") as accesses, contextlib.suppress(kernels.KernelError):
        library.add(a, b, torch.empty_like(a), len(a))
    is_one_block = len({access.block for access in accesses}) == 1
    return "unwritten-by-one-block" if is_one_block else error.kind
