"""Exercise 6.6: the launcher."""

import math
import random
import re
from dataclasses import dataclass, fields, replace

import torch

from lessons_exercises.lesson_06.e6_5_values import attention, native
from lessons_exercises.lesson_06.native import (
    STREAM,
    Batch,
    Case,
    Finding,
    Found,
    batch_of,
    build,
    check_streams,
    describe,
    drawn,
    result_of,
    same,
    show,
    size,
)
from lessons_lib.checks import Exercise, Mistake, Text
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


def returned_zero(batch):
    """Of a launcher that says that all went well."""
    return torch.zeros(batch.q.shape)


def right(batch):
    if isinstance(batch, Refused):
        raise Found("bad-launch")
    return attention()(batch)


def needed(batch) -> int:
    """Bytes of shared memory that the scores take."""
    return 0 if batch.workspace else 4 * batch.max_context_len


def giving(bytes_of, largest=LARGEST, found="bad-launch"):
    """A launch with bytes_of(batch) of shared memory; more than `largest` is refused."""

    def wrong(batch):
        if bytes_of(batch) > largest:
            raise Found(found)
        if not batch.workspace and bytes_of(batch) < 4 * int(batch.context_lens.max()):
            raise Found("dynamic-shared-too-small")
        return right(batch)

    return wrong


def grid_swapped(batch):
    """With as many sequences as heads it does not show.

    (The cases never have more sequences than heads.)
    """
    num_seqs, num_q_heads, _ = batch.q.shape
    if num_q_heads > num_seqs:
        raise Found("out-of-bounds")
    return right(batch)


def one_head(batch):
    if batch.q.shape[1] > 1:
        raise Found("output-unwritten")
    return right(batch)


def kv_heads_only(batch):
    if batch.q.shape[1] > batch.k_cache.shape[2]:
        raise Found("output-unwritten")
    return right(batch)


def grid_in_one_dimension(batch):
    """blockIdx.y is always 0, and blockIdx.x goes beyond the sequences."""
    if batch.q.shape[1] > 1:
        raise Found("out-of-bounds")
    return right(batch)


def half_and_bfloat16_exchanged(batch):
    """The bits of one format, computed with as if they were in the other."""
    other = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float16}.get(batch.q.dtype)
    if other is None or isinstance(batch, Refused):
        return right(batch)
    made = replace(
        batch,
        **{name: getattr(batch, name).view(other) for name in ("q", "k_cache", "v_cache")},
    )
    return right(made).view(batch.q.dtype)


def type_forgotten(dtype):
    def wrong(batch):
        if batch.q.dtype == dtype:
            raise Found("bad-launch")
        return right(batch)

    return wrong


def host_reads(when):
    def wrong(batch):
        if when(batch):
            raise Found("host-access")
        return right(batch)

    return wrong


def always_float(batch):
    if batch.q.element_size() < 4:
        raise Found("out-of-bounds")
    return right(batch)


def accepts(refused):
    """A launcher that returns 0 where `refused(batch)`: a batch that cannot be launched."""
    return lambda batch: (
        returned_zero(batch) if isinstance(batch, Refused) and refused(batch) else right(batch)
    )


def block_of(threads_of):
    """A block of threads_of(batch) threads."""

    def wrong(batch):
        if threads_of(batch) > 1024:
            raise Found("bad-launch")
        if threads_of(batch) % 32:
            raise Found("lane-outside-the-mask")
        return right(batch)

    return wrong


def prepare(answer):
    library = build(answer, *KERNEL_FILES[:-1])
    launch = native(library.paged_attention)

    def attend(batch):
        if isinstance(batch, Refused):
            return what_it_returns(batch)
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

    def what_it_returns(batch):
        with library.launches(stream=STREAM, failing=int(batch.fails)) as launches:
            try:
                launch(batch)
            except KernelError:  # though the launcher may have returned 0
                if launches.returned:
                    raise
        return returned_zero(batch)

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
    if isinstance(actual, OneAfterTheOther):
        return expected == actual.finding() or same(expected, actual.result)
    return same(expected, actual)


def show_result(expected, actual) -> tuple[str, str]:
    return show(expected, actual.finding() if isinstance(actual, OneAfterTheOther) else actual)


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
    except (KernelError, Found) as error:
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


def shown(kind, when=lambda batch: True):
    """A launcher in which the check sees this itself, in the batches that can be launched."""

    def wrong(batch):
        if not isinstance(batch, Refused) and when(batch):
            raise Found(kind)
        return right(batch)

    return wrong


def stream_ignored(when=lambda batch: True):
    return shown("stream-ignored", lambda batch: stream_for(batch) != 0 and when(batch))


def allowed_for(*dtypes):
    """More than 48 KiB for the kernels of these types alone."""
    return shown(
        "bad-launch", lambda batch: batch.q.dtype not in dtypes and needed(batch) > LARGEST
    )


def goes_on(dtypes, refused=()):
    """Several kernels run for batches of `dtypes`.

    For `refused`, the types of the last case, the launcher ends in an error.

    Where the output is one float, the next kernel writes 16 bits into its low half, and
    that does not show.
    """

    def wrong(batch):
        seen = refused or batch.q.dtype != torch.float32 or batch.q.numel() > 1
        if not isinstance(batch, Refused) and seen and batch.q.dtype in (*dtypes, *refused):
            raise Found("falls-through" if batch.q.dtype in dtypes else "bad-launch")
        return right(batch)

    return wrong


def of_type(dtype):
    return lambda batch: batch.q.dtype == dtype


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


ASKS = (
    "  cudaError_t error =\n"
    "      cudaFuncSetAttribute(paged_attention_kernel<T>, "
    "cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);\n"
    "  if (error != cudaSuccess) return error;\n"
)
LAUNCH = "<<<grid, 128, shared_bytes, stream>>>"

EXERCISE = Exercise(
    id="6.6",
    title="the launcher",
    answer_name="paged_attention",
    language="cuda",
    reference=right,
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
    mistakes=(
        Mistake(
            "no-dynamic-smem",
            "The kernel finds less shared memory than its scores take. "
            "The launch decides how much an `extern __shared__` array has: "
            "it is the third entry between <<< and >>>, in bytes.",
            giving(lambda batch: 0),
            ((LAUNCH, "<<<grid, 128, 0, stream>>>"),),
        ),
        Mistake(
            "bytes-not-floats",
            "The launch gives as many bytes as there are scores, "
            "but a score takes four of them.",
            giving(lambda batch: 0 if batch.workspace else batch.max_context_len),
            (("params.max_context_len * sizeof(float)", "params.max_context_len"),),
        ),
        Mistake(
            "fixed-score-buffer",
            "The shared memory does not always grow with the context. "
            "It is too small for long ones, or larger than the launch may have. "
            "Its size must come from max_context_len, whatever that is.",
            giving(lambda batch: 4 * 2048),
            (
                (
                    "params.scores ? 0 : params.max_context_len * sizeof(float)",
                    "2048 * sizeof(float)",
                ),
            ),
            also=(
                giving(lambda batch: 4 * 1024),
                giving(lambda batch: 4 * 4096),
                giving(lambda batch: 4 * 8192),
                giving(lambda batch: LARGEST),
            ),
        ),
        Mistake(
            "large-memory-not-asked-for",
            "Above 48 KiB a launch is refused, unless the kernel has been allowed that much "
            "beforehand. cudaFuncSetAttribute() does that. "
            "Does the call come before the launch, and does it name the same number of bytes?",
            giving(needed),
            ((ASKS, ""),),
        ),
        Mistake(
            "all-memory-asked-for",
            "cudaFuncSetAttribute() is asked for all of 227 KiB, whatever the launch needs. "
            "The `__shared__` variables count as well, "
            "and there is not enough for both together. On a GPU the call fails. "
            "Ask for the bytes of this launch.",
            shown("all-memory-asked-for"),
            ((ASKS, ASKS.replace("shared_bytes", "227 * 1024")),),
            also=(
                shown("all-memory-asked-for", lambda batch: needed(batch) > LARGEST),
                shown("all-memory-asked-for", lambda batch: needed(batch) > 44_000),
            ),
        ),
        Mistake(
            "asked-for-another-kernel",
            "cudaFuncSetAttribute() allows more memory for one kernel, "
            "but another kernel is launched. For CUDA, paged_attention_kernel<float> "
            "and paged_attention_kernel<__half> are two kernels.",
            allowed_for(torch.float32),
            ((ASKS, ASKS.replace("<T>", "<float>")),),
            also=(
                allowed_for(torch.float16),
                allowed_for(torch.bfloat16),
                allowed_for(torch.float32, torch.float16),
                allowed_for(torch.float32, torch.bfloat16),
                allowed_for(torch.float16, torch.bfloat16),
            ),
        ),
        Mistake(
            "block-below-a-warp",
            "The last warp of the block is not full. "
            "block_reduce exchanges numbers among all 32 lanes of a warp. "
            "So the number of threads must be a multiple of 32, "
            "whatever the sizes of the batch are.",
            block_of(lambda batch: batch.q.shape[1]),
            (("<<<grid, 128,", "<<<grid, params.num_q_heads,"),),
            also=(block_of(lambda batch: batch.max_context_len),),
        ),
        Mistake(
            "memory-for-the-workspace-too",
            "When the scores are in the workspace, the launch asks for shared memory all "
            "the same. For long contexts it asks for more than there is. "
            "What says where the scores are?",
            giving(lambda batch: 4 * batch.max_context_len, ALL),
            (("params.scores ? 0 : params", "params"),),
            also=(giving(lambda batch: 4 * batch.max_context_len, ALL, "output-unwritten"),),
        ),
        Mistake(
            "grid-swapped",
            "The kernel takes blockIdx.x for the sequence and blockIdx.y for the head. "
            "The grid has them the other way round, so blocks look for sequences that do "
            "not exist.",
            grid_swapped,
            (
                (
                    "grid(params.num_seqs, params.num_q_heads)",
                    "grid(params.num_q_heads, params.num_seqs)",
                ),
            ),
        ),
        Mistake(
            "memory-for-the-whole-grid",
            "The launch asks for room for the scores of all sequences and heads. "
            "But shared memory belongs to one thread block, "
            "and a thread block has one sequence and one head.",
            giving(lambda batch: needed(batch) * batch.q.shape[0] * batch.q.shape[1], ALL),
            (
                (
                    "params.max_context_len * sizeof(float)",
                    (
                        "params.num_seqs * params.num_q_heads * "
                        "params.max_context_len * sizeof(float)"
                    ),
                ),
            ),
            also=(
                giving(lambda batch: needed(batch) * batch.q.shape[0], ALL),
                giving(lambda batch: needed(batch) * batch.q.shape[1], ALL),
            ),
        ),
        Mistake(
            "workspace-reversed",
            "The launch gives shared memory when the scores are in the workspace, "
            "and none when they need it. Null means that there is no workspace.",
            giving(lambda batch: 4 * batch.max_context_len if batch.workspace else 0, ALL),
            (
                (
                    "params.scores ? 0 : params.max_context_len * sizeof(float)",
                    "params.scores ? params.max_context_len * sizeof(float) : 0",
                ),
            ),
        ),
        Mistake(
            "scores-in-the-caches-type",
            "The size of the scores is computed for numbers of type T. But scores are float, "
            "whatever the caches hold.",
            giving(
                lambda batch: (
                    0 if batch.workspace else batch.q.element_size() * batch.max_context_len
                ),
                ALL,
            ),
            (
                (
                    "params.max_context_len * sizeof(float)",
                    "params.max_context_len * sizeof(T)",
                ),
            ),
        ),
        Mistake(
            "host-reads-a-tensor",
            "The launcher looks into a tensor. But the launcher runs on the CPU, "
            "and the tensors are on the GPU. What the launcher has to know comes as "
            "a number, such as max_context_len.",
            host_reads(lambda batch: not batch.workspace),
            (
                (
                    "params.max_context_len * sizeof(float)",
                    "params.context_lens[0] * sizeof(float)",
                ),
            ),
            also=(host_reads(lambda batch: True),),
        ),
        Mistake(
            "grid-of-kv-heads",
            "There is a block for each KV head. There may be more query heads than that, "
            "and each query head needs a block.",
            kv_heads_only,
            (
                (
                    "grid(params.num_seqs, params.num_q_heads)",
                    "grid(params.num_seqs, params.num_kv_heads)",
                ),
            ),
        ),
        Mistake(
            "grid-in-one-dimension",
            "The number of blocks is right, but they are in one row. "
            "The kernel takes two numbers for a block: blockIdx.x for the sequence, "
            "blockIdx.y for the head.",
            grid_in_one_dimension,
            (
                (
                    "grid(params.num_seqs, params.num_q_heads)",
                    "grid(params.num_seqs * params.num_q_heads)",
                ),
            ),
        ),
        Mistake(
            "launch-numbers-swapped",
            "The grid and the threads of a block have changed places between <<< and >>>. "
            "The grid comes first.",
            shown("launch-numbers-swapped"),
            ((LAUNCH, "<<<128, grid, shared_bytes, stream>>>"),),
        ),
        Mistake(
            "formats-exchanged",
            "half is launched as bfloat16, or the other way round. Both have 16 bits, "
            "but they use them differently. The comment beside dtype has the numbers.",
            half_and_bfloat16_exchanged,
            (
                ("launch<__half>", "launch<__nv>"),
                ("launch<__nv_bfloat16>", "launch<__half>"),
                ("launch<__nv>", "launch<__nv_bfloat16>"),
            ),
        ),
        Mistake(
            "falls-through",
            "A case of the switch goes on into the next one, "
            "so several kernels are launched. A case ends with return or break.",
            goes_on((torch.float32,)),
            (
                (
                    "  if (params.dtype == 0) return launch<float>(params, stream);\n",
                    (
                        "  switch (params.dtype) {\n"
                        "    case 0: launch<float>(params, stream);\n"
                        "    case 1: return launch<__half>(params, stream);\n"
                        "  }\n"
                    ),
                ),
            ),
            also=(
                goes_on((torch.float32, torch.float16), (torch.bfloat16,)),
                goes_on((torch.float32, torch.float16)),
                goes_on((torch.float16,)),
            ),
        ),
        Mistake(
            "heads-without-blocks",
            "Only head 0 of each sequence is computed. "
            "Every pair of a sequence and a query head needs a block.",
            one_head,
            (("grid(params.num_seqs, params.num_q_heads)", "grid(params.num_seqs)"),),
        ),
        Mistake(
            "dtype-ignored",
            "Numbers of 16 bits are read as if they had 32. "
            "params.dtype says which type to launch the kernel for.",
            always_float,
            (("launch<__half>", "launch<float>"), ("launch<__nv_bfloat16>", "launch<float>")),
        ),
        Mistake(
            "unknown-dtype-accepted",
            "params.dtype is a number without a type, "
            "but the launcher says that all went well. "
            "In that case it must launch nothing and return an error: "
            "cudaErrorInvalidValue is the right one.",
            accepts(lambda batch: batch.number not in (0, 1, 2)),
            (
                (
                    "  return cudaErrorInvalidValue;",
                    "  return launch<__nv_bfloat16>(params, stream);",
                ),
            ),
            also=(
                accepts(lambda batch: batch.number > 2),
                accepts(lambda batch: batch.number < 0),
            ),
        ),
        Mistake(
            "stream-ignored",
            "The launch does not name the stream, so the kernel goes to the default stream. "
            "PyTorch may be working on another, and then the kernel would read tensors "
            "that are not ready. The stream is the fourth thing between <<< and >>>.",
            stream_ignored(),
            ((LAUNCH, "<<<grid, 128, shared_bytes>>>"),),
            also=tuple(
                stream_ignored(of_type(dtype))
                for dtype in (torch.float32, torch.float16, torch.bfloat16)
            ),
        ),
        Mistake(
            "error-not-returned",
            "When the launch fails, the caller does not learn of it. "
            "A launch itself returns nothing. Ask cudaGetLastError() right after it, "
            "and return what it says, through both functions.",
            accepts(lambda batch: batch.fails or batch.q.shape[1] >= TOO_MANY_HEADS),
            (
                (
                    "return cudaGetLastError();  // a launch itself returns nothing",
                    "cudaGetLastError();\n  return 0;",
                ),
            ),
            also=(
                accepts(lambda batch: batch.fails),
                *(
                    accepts(lambda batch, dtype=dtype: batch.fails and batch.q.dtype == dtype)
                    for dtype in (torch.float32, torch.float16, torch.bfloat16)
                ),
            ),
        ),
        Mistake(
            "memory-for-the-whole-row",
            "The launch asks for room for as many tokens as a row of the block table could "
            "have. But tables are made for the longest sequence that is allowed, "
            "and for that there may not be enough memory. "
            "How long is the longest context in this batch?",
            giving(
                lambda batch: (
                    0
                    if batch.workspace
                    else 4 * batch.block_table.shape[1] * batch.k_cache.shape[1]
                ),
                ALL,
            ),
            (
                (
                    "params.max_context_len * sizeof(float)",
                    "params.max_blocks_per_seq * params.block_size * sizeof(float)",
                ),
            ),
        ),
        Mistake(
            "memory-for-the-query",
            "The shared memory has room for head_size numbers. But it holds the scores. "
            "How many scores are there?",
            giving(lambda batch: 0 if batch.workspace else 4 * batch.q.shape[2]),
            (("params.max_context_len * sizeof(float)", "params.head_size * sizeof(float)"),),
        ),
        Mistake(
            "type-forgotten",
            "A batch of one of the three types is refused. "
            "The comment beside dtype has their numbers.",
            type_forgotten(torch.bfloat16),
            (
                (
                    "  if (params.dtype == 2) return launch<__nv_bfloat16>(params, stream);\n",
                    "",
                ),
            ),
            also=(type_forgotten(torch.float16),),
        ),
        Mistake(
            "assigned-not-compared",
            "A condition has one = where it should compare. "
            "One = writes the value into the variable, so nothing is compared. "
            "How do you write a comparison in C++?",
            None,
            (("params.dtype == 0", "params.dtype = 0"),),
        ),
    ),
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
