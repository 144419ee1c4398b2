"""Exercise 6.6: the launcher."""

import math
import random
import re
from dataclasses import dataclass, fields, replace

import torch

from lessons_exercises.lesson_06.native import (
    STREAM,
    Batch,
    Case,
    Finding,
    batch_of,
    build,
    check_streams,
    describe,
    drawn,
    result_of,
    same,
    show,
    size,
    slots_of,
)
from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise, Text
from lessons_lib.cuda_on_cpu.reports import KernelError
from paged_attention.block_table import NO_BLOCK
from paged_attention.paged_kernel import KERNEL_FILES

# bytes of dynamic shared memory that a kernel gets without asking, its static part included
LARGEST = 48 * 1024
ALL = 227 * 1024  # what a kernel can get, as on an H100; static shared memory counts as well
TOO_MANY_HEADS = 65_536  # a grid has 65,535 blocks in y


@dataclass(frozen=True)
class Refused(Batch):
    """A batch that cannot be launched.

    number: of its dtype, which may be no dtype at all.
    fails: whether the batch is a right one, and the launch is made to fail.
    """

    number: int
    fails: bool = False

    def fields(self, **others) -> dict:
        return super().fields(**others) | {"dtype": self.number}


@dataclass(frozen=True)
class RefusedCase(Case):
    number: int = 0
    fails: bool = False

    def batch(self) -> Refused:
        return Refused(
            **{
                field.name: getattr(made, field.name)
                for made in [batch_of(self)]
                for field in fields(made)
            },
            number=self.number,
            fails=self.fails,
        )


@dataclass(frozen=True)
class WideCase(Case):
    """The table is made for much longer sequences.

    entries: how many more there are in a row.
    """

    entries: int = 0


def made(case: Case) -> Batch:
    batch = batch_of(case)
    if not isinstance(case, WideCase):
        return batch
    return replace(
        batch,
        block_table=torch.nn.functional.pad(
            batch.block_table, (0, case.entries), value=NO_BLOCK
        ),
    )


def attention(batch):
    """Computed in float64."""
    if isinstance(batch, Refused):
        raise KernelError("This batch cannot be launched.", "bad-launch")
    exact = batch.double()
    out = torch.zeros_like(exact.q)
    group = batch.q.shape[1] // batch.k_cache.shape[2]
    for seq, length in enumerate(batch.context_lens.tolist()):
        slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])
        keys, values = (  # (length, num_q_heads, head_size)
            cache.flatten(0, 1)[slots].repeat_interleave(group, 1)
            for cache in (exact.k_cache, exact.v_cache)
        )
        scores = (keys * exact.q[seq]).sum(-1) * batch.scale
        out[seq] = (torch.softmax(scores, 0)[..., None] * values).sum(0)
    return out.to(batch.q.dtype)


def prepare(answer):
    library = build(answer, *KERNEL_FILES[:-1])

    def launch(batch):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        scores = batch.new_scores() if batch.workspace else None
        library.paged_attention(**batch.fields(out=out, scores=scores))
        return out

    def attend(batch):
        if isinstance(batch, Refused):
            return launch_refused(batch)
        stream = stream_for(batch)
        with library.launches(stream=stream) as launches:
            try:
                out = launch(batch)
            except KernelError as error:
                error.kind = kind_by_launches(error, launches, batch)
                raise
        attend.num_launches = len(launches) if several_kernels(launches) else 0
        check_streams(launches, stream)
        return out

    def launch_refused(batch):
        with library.launches(stream=STREAM, failing=int(batch.fails)) as launches:
            try:
                launch(batch)
            except KernelError:  # though the launcher may have returned 0
                if launches.returned:
                    raise

    return attend


def stream_for(batch) -> int:
    """Batches of three sequences are launched on the default stream."""
    return 0 if len(batch.q) == 3 else STREAM


def several_kernels(launches) -> bool:
    return len({launch.function for launch in launches}) > 1


def kind_by_launches(error, launches, batch) -> str:
    """The kind of an error, or what went wrong in a launch, as far as numbers show it."""
    num_seqs, num_q_heads, _ = batch.q.shape
    if any(
        launch.block[:2] == (num_seqs, num_q_heads) and launch.grid[0] % 32 == 0
        for launch in launches
    ):
        return "launch-numbers-swapped"
    if "cudaFuncSetAttribute allowed so much" in str(error):
        return "all-memory-asked-for"
    return "falls-through" if several_kernels(launches) else error.kind


def cases():
    yield from (
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
        *(
            RefusedCase((2,), 1, 1, 4, 4, dtype=number, number=number, fails=True)
            for number in range(3)
        ),
    )


def hidden(seed):
    """Batches of any shape.

    Then contexts with scores that need more shared memory than usual, or that do not fit.
    Then batches that are refused.
    """
    chance = random.Random(seed)
    yield from (drawn(chance, gap=0, workspace=number % 3 == 0) for number in range(8))
    for length, number in ((2_100, 0), (12_300, 0), (12_300, chance.randint(1, 2))):
        yield Case(
            (length + chance.randint(0, 700),),
            1,
            1,
            1,
            256,
            dtype=number,
            seed=chance.randrange(2**31),
        )
    yield drawn(chance, gap=0, spare_context=chance.randint(60_000, 99_000), workspace=True)
    yield WideCase((chance.randint(2, 30),), 1, 1, 4, 16, entries=chance.randint(4_000, 6_000))
    yield from (
        RefusedCase((chance.randint(2, 9),), 1, 1, 4, 4, number=number)
        for number in (chance.randint(4, 99), -chance.randint(2, 99))
    )
    yield RefusedCase((1,), TOO_MANY_HEADS + chance.randint(1, 99), 1, 1, 4)
    yield from (
        RefusedCase(
            (chance.randint(2, 9),), 1, 1, 4, 4, dtype=number, number=number, fails=True
        )
        for number in range(3)
    )


@dataclass(frozen=True)
class OneAfterTheOther:
    """What several kernels gave, with how many launches.

    That is right, or a case that went on into the next one.
    """

    result: object
    num_launches: int

    def finding(self) -> Finding:
        return Finding(
            KernelError(
                f"{self.num_launches} kernels were launched, one after the other.",
                "falls-through",
            ),
            (),
        )


def same_result(expected, actual) -> bool:
    """Any two results of several kernels are the same: their numbers depend on the launch."""
    if isinstance(actual, OneAfterTheOther) and same(expected, actual.result):
        return True
    return same(shown(expected), shown(actual))


def shown(result):
    return result.finding() if isinstance(result, OneAfterTheOther) else result


def show_result(expected, actual) -> tuple[str, str]:
    return show(expected, shown(actual))


def observe(subject, case):
    """The output or what was found.

    For a batch that cannot be launched, what the launcher returned.
    """
    if not isinstance(case, RefusedCase):
        result = result_of(lambda: subject(made(case)))
        several = not isinstance(result, Finding) and getattr(subject, "num_launches", 0)
        return OneAfterTheOther(result, several) if several else result
    try:
        subject(case.batch())
    except KernelError as error:
        return (
            Text("returns an error code") if error.kind == "bad-launch" else Finding(error, ())
        )
    return Text("returns 0, as if all were well")


def describe_case(case):
    if not isinstance(case, RefusedCase):
        wide = isinstance(case, WideCase)
        row = (
            f", {made(case).block_table.shape[1]:,} entries in a row of the block table"
            if wide
            else ""
        )
        return (
            f"{describe(case)}, "
            f"max_context_len {max(1, max(case.context_lens) + case.spare_context)}{row}"
        )
    if case.num_q_heads >= TOO_MANY_HEADS:
        return (
            f"a batch with {case.num_q_heads:,} query heads, "
            "and a grid has at most 65,535 blocks in y"
        )
    if case.fails:
        return f"{describe(case)}; the launch is made to fail"
    return f"params.dtype is {case.number}, which is no type"


# A number is assigned where a condition belongs: in an if, or before the ? of a ternary.
NUMBER = r"\s*=(?!=)\s*(?:\d+|nullptr|NULL)\s*"
ASSIGNED = (
    rf"\b(?:if|while)\s*\(\s*\w+(?:(?:\.|->)\w+)*{NUMBER}(?:\)|&&|\|\|)"
    rf"|\bparams\.\w+{NUMBER}\)?\s*\?"
)


def shared_bytes_of(launch: str, text: str) -> int | None:
    """The shared memory of a launch, as far as it is a fixed number.

    The number is there itself, or is the value of the variable there.
    """
    arguments = [argument.strip() for argument in re.split(r",(?![^(]*\))", launch)]
    value = arguments[2] if len(arguments) > 2 else ""
    if re.fullmatch(r"[a-zA-Z_]\w*", value):
        given = re.findall(rf"\b{value}\s*[-+*/]?=(?!=)([^;]*);", text)
        value = (
            re.sub(r"^[^?]*\?(?:\s*0\s*:)?|:\s*0\s*$", "", given[0]) if len(given) == 1 else ""
        )
    value = value.replace("sizeof(float)", "4")
    if not re.fullmatch(r"\(*\d+(?:\s*\*\s*\d+)*\)*", value.strip()):
        return None
    return math.prod(map(int, re.findall(r"\d+", value)))


def name_from_text(source: str) -> str | None:
    """A condition that is none, or a fixed number of bytes that a launch may not have.

    The results of such a launcher can be anything.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    if re.search(ASSIGNED, text):
        return "assigned-not-compared"
    sizes = [
        shared_bytes_of(launch, text) or 0
        for launch in re.findall(r"<<<(.*?)>>>", text, flags=re.DOTALL)
    ]
    return "fixed-score-buffer" if any(LARGEST <= size < ALL for size in sizes) else None


EXERCISE = Exercise(
    id="6.6",
    title="the launcher",
    answer_name="paged_attention",
    language="cuda",
    reference=attention,
    prepare=prepare,
    cases=cases,
    size=lambda case: (*size(case), getattr(case, "entries", 0)),
    hidden=hidden,
    observe=observe,
    describe=describe_case,
    # mistakes that other cases find may give anything here
    chancy=lambda case: isinstance(case, RefusedCase),
    name_from_text=name_from_text,
    same=same_result,
    show=show_result,
    points=2,
    time_limit=30.0,  # long contexts take a second or two, and more on a busy machine
    mistakes=Bank("6.6", "paged_attention", __file__, globals(), prepare),
    hints=(
        (
            "`kernel<T><<<grid, threads, bytes, stream>>>(params)` starts the kernel "
            "for the type T. The grid is a dim3 of two numbers, sequences and heads."
        ),
        (
            "The scores take max_context_len floats of shared memory, "
            "and none when params.scores is not null."
        ),
        (
            "`cudaFuncSetAttribute(kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, "
            "bytes)` allows a kernel more than 48 KiB. "
            "It returns an error if the GPU does not have that much."
        ),
        (
            "launch<T>() ends by asking how the launch went. "
            "paged_attention() chooses T by params.dtype and returns what launch<T>() "
            "returns."
        ),
    ),
)
