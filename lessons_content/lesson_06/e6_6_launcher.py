"""Exercise 6.6: the launcher.

`kernel<T><<<grid, threads, bytes, stream>>>(params)` starts the kernel for the type T. The
grid is a dim3 of two numbers, sequences and heads.

The scores take max_context_len floats of shared memory, and none when params.scores is not
null.

`cudaFuncSetAttribute(kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)` allows a
kernel more than 48 KiB. It returns an error if the GPU does not have that much.

launch<T>() ends by asking how the launch went. paged_attention() chooses T by params.dtype and
returns what launch<T>() returns.
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_06 import batches, launches
from lessons_content.lesson_06.batches import Case, drawn
from lessons_content.lesson_06.launches import TOO_MANY_HEADS, RefusedCase, WideCase

CASES = [
    Case((1,), 1, 1, 4, 4),
    Case((3,), 1, 1, 4, 4),
    Case((5,), 2, 2, 8, 4),
    Case((4, 5, 0), 4, 2, 8, 4),
    Case((6, 4), 6, 2, 8, 4, dtype=1),
    Case((7, 4), 3, 1, 8, 3, dtype=2),
    Case((9, 30), 2, 2, 8, 4, workspace=True),
    Case((20,), 1, 1, 4, 16, spare_context=100),
    Case((2049,), 1, 1, 1, 64),
    Case((11500,), 1, 1, 1, 256),
    # with the `__shared__` variables, these scores need more than 48 KiB
    Case((3,), 1, 1, 4, 16, spare_context=11_967),
    Case((12300,), 1, 1, 1, 256),
    Case((8, 3), 2, 1, 4, 16, spare_context=100_000, workspace=True),
    Case((12400,), 1, 1, 1, 256, dtype=1),
    Case((12500,), 1, 1, 1, 256, dtype=2),
    Case((3, 5), 2, 1, 4, 16, spare_context=30_000),
    WideCase((3, 20), 2, 1, 4, 16, entries=5000),
    RefusedCase((1,), 1, 1, 4, 4, number=3),
    RefusedCase((1,), 1, 1, 4, 4, number=-1),
    RefusedCase((1,), TOO_MANY_HEADS, 1, 1, 4),
    *(RefusedCase((2,), 1, 1, 4, 4, each, number=each, fails=True) for each in range(3)),
]


def hidden(chance):
    """Any shape; scores that need more shared memory, or too much; batches to refuse."""
    yield from (drawn(chance, gap=0, workspace=number % 3 == 0) for number in range(8))
    for least, dtype in ((2_100, 0), (12_300, 0), (12_300, chance.randint(1, 2))):
        length, seed = least + chance.randint(0, 700), chance.randrange(2**31)
        yield Case((length,), 1, 1, 1, 256, dtype=dtype, seed=seed)
    yield drawn(chance, gap=0, spare_context=chance.randint(60_000, 99_000), workspace=True)
    yield WideCase((chance.randint(2, 30),), 1, 1, 4, 16, entries=chance.randint(4_000, 6_000))
    for number in (chance.randint(4, 99), -chance.randint(2, 99)):
        yield RefusedCase((chance.randint(2, 9),), 1, 1, 4, 4, number=number)
    yield RefusedCase((1,), TOO_MANY_HEADS + chance.randint(1, 99), 1, 1, 4)
    for dtype in range(3):
        length = chance.randint(2, 9)
        yield RefusedCase((length,), 1, 1, 4, 4, dtype=dtype, number=dtype, fails=True)


EXERCISE = exercise(
    globals(),
    launches,
    kernels,
    answer_name="paged_attention",
    size=lambda case: (*batches.size(case), getattr(case, "entries", 0)),
    # mistakes that other cases find may give anything here
    chancy=lambda case: isinstance(case, RefusedCase),
    points=2,
    time_limit=30.0,  # long contexts take a second or two, and more on a busy machine
)
