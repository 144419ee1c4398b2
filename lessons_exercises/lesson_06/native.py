"""The learner's CUDA texts as functions on tensors, for the checks.

They are built for checked mode. What it finds is a result too.
"""

import contextlib
import math
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Raised, Text
from lessons_lib.cuda import build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from lessons_lib.inline import read_kernel
from paged_attention.block_table import NO_BLOCK
from paged_attention.bug_hunt import STEP_LIMIT

POISON = 1e4  # in every slot that holds no token
# of outputs in 16 bits, which two right answers may round apart
ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# in the order of the numbers of PagedAttentionParams::dtype
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# A missing barrier shows in one of these ways, as the threads happen to come.
ORDER = {"race", "missing-syncwarp", "shared-uninitialised"}
# which of the two names it gets depends on what the thread has read before
OUTSIDE = {"out-of-bounds", "block-table"}
STREAM = 0x5EED0  # a stream for launchers, which can only hand it on
NO_FAULT = Text("a result, and no fault on the way")
FAR_BLOCK = Text("the block that the table names is looked for")
CUT_OFF = Text("something else is looked for, at an offset that was cut off to 32 bits")


def kind_of(error: KernelError) -> str:
    """The kind of a fault, as far as it tells one mistake from another."""
    what = str(error).partition("\n")[0]
    if error.kind == "race" or error.kind == "missing-syncwarp":
        return "several-writers" if re.search(r" writes .*, which .* wrote", what) else "order"
    if error.kind == "absent-lane" and "which does not take part" in what:
        return "lane-outside-the-mask"
    return (
        "order" if error.kind in ORDER else "outside" if error.kind in OUTSIDE else error.kind
    )


class Finding(Raised):
    """A fault found by checked mode, as a result.

    Two are equal when kind and tensor are; the learner sees the message.
    """

    def __new__(cls, error, names):
        kind = kind_of(error)
        finding = super().__new__(
            cls, f"{kind} {error.name if error.name in names else ''}".strip()
        )
        finding.message = str(error)
        return finding

    def __repr__(self):
        return self.message


def result_of(call, names: tuple[str, ...] = (), parts: tuple[str, ...] = ()):
    """What `call()` gives, for comparison.

    It is a tensor, a tuple of tensors named `parts`, or a Finding.

    names: the tensors for which it matters that the fault is about them.
    """
    try:
        return tensors.values(call(), *parts)
    except KernelError as error:
        return Finding(error, names)


def same(expected, actual) -> bool:
    """As tensors.same(); outputs in 16 bits may differ by a rounding."""
    if isinstance(expected, tensors.Values) and isinstance(actual, tensors.Values):
        ours, theirs = expected.tensor, actual.tensor
        if (
            ours.dtype in ROUNDING
            and ours.dtype == theirs.dtype
            and ours.shape == theirs.shape
        ):
            tolerance = ROUNDING[ours.dtype]
            return torch.allclose(
                theirs.double(), ours.double(), rtol=tolerance, atol=tolerance, equal_nan=True
            )
    return tensors.same(expected, actual)


def with_misplaced_barriers(call, answer: str):
    """`call()`, whose KernelError may have the kind "barrier-in-branch".

    It has that kind if a barrier is there, but not for all threads.
    """
    try:
        return call()
    except KernelError as error:
        if (
            error.kind == "divergent-barrier"
            or kind_of(error) == "order"
            and barrier_in_branch(answer)
        ):
            error.kind = "barrier-in-branch"
        raise


def barrier_in_branch(text: str) -> bool:
    """Whether a __syncthreads() is in a place that not all threads of a block reach.

    That is in a branch or loop that not all threads take alike, or after a return in one.

    Read from the text: a condition depends on the thread if it names threadIdx, or a variable
        that was made from it.
    """
    text = re.sub(r"//.*|/\*[\s\S]*?\*/", "", text)
    own = {"threadIdx"}
    for _ in range(3):
        own |= {
            name
            for name, value in re.findall(r"(\w+)\s*=(?!=)([^;,]*)", text)
            if own & set(re.findall(r"\w+", value))
        }
    for branch in re.finditer(r"\b(if|for|while)\s*\(", text):
        body = _end(text, branch.end() - 1, ")")
        if not own & set(re.findall(r"\w+", text[branch.end() : body])):
            continue
        end = _end(text, body)
        if otherwise := re.match(r"\s*else\b", text[end:]):
            end = _end(text, end + otherwise.end())
        behind = text[end : end + max(text[end:].find("\n}"), 0)]
        if (
            "__syncthreads" in text[body:end]
            or "return" in text[body:end]
            and "__syncthreads" in behind
        ):
            return True
    return False


def _end(text: str, start: int, closing: str = ";}") -> int:
    """Where the statement, or the bracket, that begins at `start` ends."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "({[") - (text[place] in ")}]")
        if depth <= 0 and text[place] in closing:
            return place + 1
    return len(text)


def show(expected, actual) -> tuple[str, str]:
    """As tensors.show(), but if a fault was found, it shows the report."""
    return (
        (NO_FAULT, repr(actual))
        if isinstance(actual, Finding)
        else tensors.show(expected, actual)
    )


def check_streams(launches, stream: int):
    """Raises KernelError of the kind "stream-ignored" for a launch on another stream.

    Another stream than the launcher was given.
    """
    for launch in launches:
        if launch.stream != stream:
            given, used = (
                f"stream {number:#x}" if number else "the default stream"
                for number in (stream, launch.stream)
            )
            raise KernelError(
                f"The launcher was given {given}, and launched {launch.kernel} on {used}.",
                "stream-ignored",
            )


def asked(library, call):
    """The Launches of `call()`, without what they would do: the first one is made to fail.

    `returned` says what the launcher returned then.
    """
    with (
        library.launches(stream=STREAM, failing=1) as launches,
        contextlib.suppress(KernelError),
    ):
        call()
    return launches


def reached(call) -> Text:
    """Where a kernel looks for a block with an offset that does not fit into an int.

    There is no memory for so large a pool, and none is needed: checked mode stops the first
    read, and says whether it went to the block that the table names.
    """
    try:
        call()
    except KernelError as error:
        if error.kind == "out-of-bounds":
            return CUT_OFF
    return FAR_BLOCK


def observe_far(subject, case) -> Text:
    """What happens in so large a pool. Only what is built can tell."""
    return subject.far(case.batch()) if hasattr(subject, "far") else FAR_BLOCK


def build(answer: str, *given: str, after: tuple[str, ...] = (), wrapper: str = ""):
    """The checked library of `answer` and the check's own text.

    The files of kernels/ that come before and after the answer are in it too.
    """
    texts = [
        *((name, read_kernel(name)) for name in given),
        ("your code", answer),
        *((name, read_kernel(name)) for name in after),
    ]
    if wrapper:
        texts.append(
            ("the check", (Path(__file__).parent / wrapper).read_text(encoding="utf-8"))
        )
    names, sources = zip(*texts, strict=True)
    library = build_cuda(*sources, names=names, target="checked", name="check")
    library.options(step_limit=STEP_LIMIT)
    return library


@dataclass(frozen=True)
class Batch:
    """A batch of decodes: what the paged kernel is given."""

    q: Tensor  # (num_seqs, num_q_heads, head_size)
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    context_lens: Tensor
    max_context_len: int
    workspace: bool  # scores in a workspace, not in shared memory
    scale: float

    def fields(self, **others) -> dict:
        """The fields of PagedAttentionParams, by name.

        Those not given in `others` are null.
        """
        num_seqs, num_q_heads, head_size = self.q.shape
        pointers = dict.fromkeys(("out", "scores"))
        return (
            pointers
            | dict(
                q=self.q,
                k_cache=self.k_cache,
                v_cache=self.v_cache,
                block_table=self.block_table,
                context_lens=self.context_lens,
                q_stride=self.q.stride(0),
                num_seqs=num_seqs,
                num_q_heads=num_q_heads,
                num_kv_heads=self.k_cache.shape[2],
                head_size=head_size,
                block_size=self.k_cache.shape[1],
                max_blocks_per_seq=self.block_table.shape[1],
                max_context_len=self.max_context_len,
                dtype=DTYPES.index(self.q.dtype),
                scale=self.scale,
            )
            | others
        )

    def new_scores(self) -> Tensor:
        return torch.full((*self.q.shape[:2], self.max_context_len), -7777.0)

    def double(self) -> "Batch":
        q, k_cache, v_cache = (
            tensor.double() for tensor in (self.q, self.k_cache, self.v_cache)
        )
        return replace(self, q=q, k_cache=k_cache, v_cache=v_cache)


@dataclass(frozen=True)
class Case:
    """The sizes of a batch.

    spread: what the queries are multiplied by.
    shift: a number that all scores are near.
    """

    context_lens: tuple[int, ...]
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int
    dtype: int = 0
    spare_context: int = 0  # how much max_context_len is beyond the longest context
    gap: int = 0  # elements between the query rows of two sequences
    workspace: bool = False
    spread: float = 1.0
    shift: float = 0.0
    seed: int = 0
    scale: float = 0.0  # 0: the usual one, 1 / sqrt(head_size)


@dataclass(frozen=True)
class FarCase(Case):
    """The sizes of a batch.

    Its table names a block that would begin at number 2³² + 12288 of the cache.
    """

    def batch(self) -> Batch:
        batch = batch_of(self)
        numbers_of_a_block = batch.k_cache[0].numel()
        return replace(
            batch,
            block_table=torch.full_like(
                batch.block_table, (2**32 + 12288) // numbers_of_a_block
            ),
        )

    def describe(self) -> str:
        return (
            f"{describe(self)}, "
            "in a pool in which a block begins at number 4,294,979,584 of the cache"
        )


FAR = FarCase((3,), 1, 1, 8, 4)


def drawn(chance: random.Random, **sizes) -> Case:
    """For hidden cases: a small batch of any shape, with `sizes` as they are given."""
    block_size = chance.randint(2, 9)
    num_kv_heads = chance.randint(1, 3)
    group = chance.randint(1, 4)
    lengths = [
        chance.choice((1, block_size, block_size + 1, chance.randint(2, 4 * block_size)))
        # never more sequences than heads
        for _ in range(chance.randint(1, min(3, group * num_kv_heads)))
    ]
    return Case(
        **dict(
            context_lens=tuple(lengths),
            num_q_heads=group * num_kv_heads,
            num_kv_heads=num_kv_heads,
            head_size=chance.choice((4, 8, 12, 20)),
            block_size=block_size,
            dtype=chance.choice((0, 0, 1, 2)),
            spare_context=chance.choice((0, 9)),
            gap=chance.choice((0, 0, 5)),
            seed=chance.randrange(2**31),
        )
        | sizes
    )


def batch_of(case: Case) -> Batch:
    """A pool with shuffled blocks, and the batch of the case.

    The slots without a token hold poison.
    """
    generator = torch.Generator().manual_seed(case.seed)
    num_seqs, dtype = len(case.context_lens), DTYPES[case.dtype]
    longest = max(case.context_lens) + case.spare_context
    needed = [-(-length // case.block_size) for length in case.context_lens]
    num_blocks = sum(needed) + 2
    ids = torch.randperm(num_blocks, generator=generator, dtype=torch.int32)
    table = torch.full(
        (num_seqs, max(-(-longest // case.block_size), 1) + 1), NO_BLOCK, dtype=torch.int32
    )
    caches = torch.full(
        (2, num_blocks, case.block_size, case.num_kv_heads, case.head_size), POISON
    )
    start = 0
    for row, (length, count) in enumerate(zip(case.context_lens, needed, strict=True)):
        table[row, :count] = ids[start : start + count]
        start += count
        numbers = torch.randn(2, length, *caches.shape[3:], generator=generator)
        if case.shift:
            numbers[0, :, :, 0] = 1.0
        caches.flatten(1, 2)[:, slots_of(table, row, length, case.block_size)] = numbers
    row_length = case.num_q_heads * case.head_size
    q = case.spread * torch.randn(num_seqs, row_length + case.gap, generator=generator)
    q = q.to(dtype)[:, :row_length].unflatten(1, (case.num_q_heads, case.head_size))
    if case.shift:
        q[:, :, 0] = case.shift * math.sqrt(case.head_size)
    return Batch(
        q,
        *caches.to(dtype),
        table,
        torch.tensor(case.context_lens, dtype=torch.int32),
        max(longest, 1),
        case.workspace,
        case.scale or 1 / math.sqrt(case.head_size),
    )


def slots_of(table: Tensor, row: int, length: int, block_size: int) -> Tensor:
    """int64 (length,): the slots of a sequence's tokens."""
    token = torch.arange(length)
    return table[row].long()[token // block_size] * block_size + token % block_size


def size(case: Case) -> tuple[int, int]:
    """The tokens, those that max_context_len adds among them, and how many numbers.

    The numbers are those in q and in the tokens' keys.
    """
    tokens = sum(case.context_lens)
    numbers = len(case.context_lens) * case.num_q_heads + tokens * case.num_kv_heads
    return tokens + case.spare_context, numbers * case.head_size


def describe(case: Case) -> str:
    contexts = (
        f"a context of {counted(case.context_lens[0], 'token')}"
        if len(case.context_lens) == 1
        else f"contexts of {listed(case.context_lens)} tokens"
    )
    more = [f"{('float', 'half', 'bfloat16')[case.dtype]}"]
    if case.gap:
        more.append(f"{case.gap} elements between two query rows")
    if case.workspace:
        more.append("scores in a workspace")
    if case.spread != 1.0:
        more.append(f"queries {case.spread:g} times as large as usual")
    if case.shift:
        more.append(f"all scores near {case.shift:g}")
    if case.scale:
        more.append(f"scale {case.scale:g}")
    heads = (
        f"{counted(case.num_q_heads, 'query head')} "
        f"and {counted(case.num_kv_heads, 'KV head')} of size {case.head_size}"
    )
    return f"{contexts}, {heads}, blocks of {case.block_size}, {', '.join(more)}"
