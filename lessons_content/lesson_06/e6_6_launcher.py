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

from dataclasses import dataclass, replace

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_06 import batches
from lessons_content.lesson_06.batches import Batch, Case, drawn
from lessons_content.lesson_06.launch_text import name_from_text
from paged_attention.attention.paged_kernel import KERNEL_FILES
from paged_attention.pool.block_table import NO_BLOCK

BEFORE = " ".join(name.removesuffix(".cuh") for name in KERNEL_FILES[:-1])
TOO_MANY_HEADS = 65_536  # a grid has 65,535 blocks in y


@dataclass(frozen=True)
class RefusedCase(Case):
    """A batch that cannot be launched.

    number: of its dtype, which may be no dtype at all.
    fails: whether the batch is a right one, and the launch is made to fail.
    """

    number: int = 0
    fails: bool = False

    def describe(self, result: str = "") -> str:
        if self.num_q_heads >= TOO_MANY_HEADS:
            heads = f"a batch with {self.num_q_heads:,} query heads"
            return f"{heads}, and a grid has at most 65,535 blocks in y"
        if self.fails:
            return f"{super().describe()}; the launch is made to fail"
        return f"params.dtype is {self.number}, which is no type"


@dataclass(frozen=True)
class WideCase(Case):
    """The table is made for much longer sequences: it has more entries in a row."""

    entries: int = 0

    def batch(self) -> Batch:
        batch = super().batch()
        spare = torch.full((len(batch.q), self.entries), NO_BLOCK, dtype=torch.int32)
        return replace(batch, block_table=torch.cat((batch.block_table, spare), dim=1))


def reference(case):
    if isinstance(case, RefusedCase):
        raise kernels.KernelError("This batch cannot be launched.", "bad-launch")
    return batches.attention(case.batch())


def prepare(answer):
    library = kernels.build(answer, BEFORE)

    def launch(batch, **others):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        scores = batch.new_scores() if batch.workspace else None
        library.paged_attention(**batch.fields(out=out, scores=scores, **others))
        return out

    def attend(case):
        batch = case.batch()
        if isinstance(case, RefusedCase):
            return launch_refused(case, batch)
        stream = 0 if len(batch.q) == 3 else kernels.STREAM
        with kernels.on_stream(library, stream) as launches:
            try:
                out = launch(batch)
            except kernels.KernelError as error:
                error.kind = kind_by_launches(error, launches, batch)
                raise
        attend.num_launches = len(launches) if several_kernels(launches) else 0
        return out

    def launch_refused(case, batch):
        with library.launches(stream=kernels.STREAM, failing=int(case.fails)) as launches:
            try:
                launch(batch, dtype=case.number)
            except kernels.KernelError:  # though the launcher may have returned 0
                if launches.returned:
                    raise

    return attend


def several_kernels(launches) -> bool:
    return len({launch.function for launch in launches}) > 1


def kind_by_launches(error, launches, batch) -> str:
    """The kind of an error, or what went wrong in a launch, as far as numbers show it."""
    grid = tuple(batch.q.shape[:2])
    if any(each.block[:2] == grid and each.grid[0] % 32 == 0 for each in launches):
        return "launch-numbers-swapped"
    if "cudaFuncSetAttribute allowed so much" in str(error):
        return "all-memory-asked-for"
    return "falls-through" if several_kernels(launches) else error.kind


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


def same(expected, actual) -> bool:
    """As for all kernels. Several launches in a row may give the right numbers.

    If they do not, a switch went on into its next case. Any two of those are the same, since
    their numbers depend on the launch.
    """
    given = getattr(actual, "result", None)
    return kernels.same(expected, given) or kernels.same(expected, actual)


def observe(subject, case):
    """The output or what was found; of what cannot be launched, what the launcher returned."""
    if not isinstance(case, RefusedCase):
        result = kernels.result_of(lambda: subject(case))
        if isinstance(result, kernels.Finding) or not getattr(subject, "num_launches", 0):
            return result
        words = f"{subject.num_launches} kernels were launched, one after the other."
        finding = kernels.Finding(kernels.KernelError(words, "falls-through"))
        finding.result = result
        return finding
    try:
        subject(case)
    except kernels.KernelError as error:
        is_refused = error.kind == "bad-launch"
        return Text("returns an error code") if is_refused else kernels.Finding(error)
    return Text("returns 0, as if all were well")


def describe(case):
    if isinstance(case, RefusedCase):
        return case.describe()
    batch = case.batch()
    words = f"{case.describe()}, max_context_len {batch.max_context_len}"
    if isinstance(case, WideCase):
        words += f", {batch.block_table.shape[1]:,} entries in a row of the block table"
    return words


EXERCISE = exercise(
    globals(),
    kernels,
    answer_name="paged_attention",
    size=lambda case: (*batches.size(case), getattr(case, "entries", 0)),
    # mistakes that other cases find may give anything here
    chancy=lambda case: isinstance(case, RefusedCase),
    points=2,
    time_limit=30.0,  # long contexts take a second or two, and more on a busy machine
)
