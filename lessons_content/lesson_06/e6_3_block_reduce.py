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
import re

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise

WARP = 32


def reference(values):
    """The maximum and the sum of each block, once for each of its threads.

    values: (num_blocks, rounds, threads).
    """
    reduced = values.amax(-1), values.double().sum(-1).float()
    return tuple(each[..., None].expand_as(values).contiguous() for each in reduced)


def name_from_text(answer):
    """Each thread has its own array, and they share none."""
    text = re.sub(r"//.*", "", answer)
    is_own = "__shared__" not in text and re.search(r"^\s*float\s+\w+\[", text, re.M)
    return "array-not-shared" if is_own else None


def prepare(answer):
    library = kernels.build(answer, wrapper="reduce_check.cu")

    def reduce_checked(values):
        out_max, out_sum = torch.empty_like(values), torch.empty_like(values)
        try:
            kernels.with_misplaced_barriers(
                lambda: library.reduce(values, out_max, out_sum, *values.shape), answer
            )
        except kernels.KernelError as error:
            if never_written(str(error), answer, values.shape[-1]):
                error.kind = "never-written"
            mask = re.search(r"with the mask 0x([0-9a-f]+)", str(error))
            if error.kind == "absent-lane" and mask and int(mask[1], 16) != 0xFFFFFFFF:
                error.kind = "mask-too-small"
            if warp_of_another_size(answer):
                error.kind = "warp-size"
            raise
        return out_max, out_sum

    return reduce_checked


def warp_of_another_size(answer):
    """Whether warps have 16 or 64 threads. (blockDim.x / 64 may be half their number.)"""
    text = kernels.without_comments(answer)
    own = "|".join((r"threadIdx\.x", *re.findall(r"\b(\w+)\s*=\s*threadIdx\.x\s*[;,]", text)))
    divided = r"\s*(?:[/%]\s*(?:16|64)|>>\s*[46]|&\s*(?:15|63|0xf|0x3f))\b"
    warps_of_16 = r"\bblockDim\.x\s*(?:/\s*16|>>\s*4)\b"
    return bool(re.search(rf"\b(?:{own}){divided}|{warps_of_16}", text))


def never_written(report, answer, threads):
    """Whether no thread ever writes the place that is read. Then no barrier would help.

    An array of up to 32 places has one for each warp.
    """
    read = re.search(r" reads (\w+)\[(\d+)\] before any thread", report)
    size = read and re.search(rf"\b{read[1]}\s*\[\s*(\d+)\s*\]", answer)
    if not size:
        return False
    return int(read[2]) >= (threads // WARP if int(size[1]) <= WARP else threads)


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
    kernels,
    answer_name="block_reduce",
    size=lambda case: math.prod(case[:3]),
    points=2,
)
