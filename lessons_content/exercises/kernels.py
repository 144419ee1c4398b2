"""The learner's CUDA texts as functions on tensors: one kind of exercises (exercise.py).

They are built for checked mode. What it finds is a result too.
"""

import re
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from lessons_content.exercises import tensors
from lessons_lib.checks import Raised, Text
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from paged_attention.attention.bug_hunt import STEP_LIMIT
from paged_attention.ladder.decode import Shape, shape_text

language = "cuda"

# how far apart two right answers may round their outputs in 16 bits
ROUNDING = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# A missing barrier shows in one of these ways. Which one depends on the order of the threads.
ORDER = {"race", "missing-syncwarp", "shared-uninitialised"}
# Which of these two kinds a fault gets depends on what the thread has read before.
OUTSIDE = {"out-of-bounds", "block-table"}
STREAM = 0x5EED0  # given to launchers, which can only hand it on
AROUND = 1e4  # what lies around the numbers that an answer may write
NO_FAULT = Text("a result, and no fault on the way")


def kind_of(error: KernelError) -> str:
    """The kind of a fault, as far as it tells one mistake from another."""
    what = str(error).partition("\n")[0]
    is_race = error.kind in ("race", "missing-syncwarp")
    if is_race and re.search(r" writes .*, which .* wrote", what):
        return "several-writers"
    if error.kind == "absent-lane" and "which does not take part" in what:
        return "lane-outside-the-mask"
    if error.kind in ORDER:
        return "order"
    return "outside" if error.kind in OUTSIDE else error.kind


class Finding(Raised):
    """A fault found by checked mode, as a result.

    Two are equal when kind and tensor are; the learner sees the message.
    """

    def __new__(cls, error, names=()):
        name = error.name if error.name in names else ""
        finding = super().__new__(cls, f"{kind_of(error)} {name}".strip())
        finding.message = str(error)
        return finding

    def __repr__(self):
        return self.message


def result_of(call, names: tuple[str, ...] = (), parts: tuple[str, ...] = ()):
    """What `call()` gives: a tensor, a tuple of tensors named `parts`, or a Finding.

    names: the tensors for which it matters that the fault is about them.
    """
    try:
        return tensors.values(call(), *parts)
    except KernelError as error:
        return Finding(error, names)


def observing(*names: str, parts: tuple[str, ...] = ()):
    """The `observe` of cases that have inputs(). names, parts: as in `result_of`.

    A subject takes the case and its inputs.
    """
    return lambda subject, case: result_of(lambda: subject(case, *case.inputs()), names, parts)


def check_around(around: torch.Tensor, words: str, kind: str):
    """Raises a KernelError if a number that lies around an answer's own has been changed."""
    if not (around == AROUND).all():
        raise KernelError(words, kind)


def same(expected, actual) -> bool:
    """As tensors.same(); outputs in 16 bits may differ by a rounding."""
    if isinstance(expected, tensors.Values) and isinstance(actual, tensors.Values):
        ours, theirs = expected.tensor, actual.tensor
        is_alike = (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if is_alike and (most := ROUNDING.get(ours.dtype)):
            return torch.allclose(theirs.double(), ours.double(), most, most, equal_nan=True)
    return tensors.same(expected, actual)


def show(expected, actual) -> tuple[str, str]:
    """As tensors.show(), but if a fault was found, it shows the report."""
    if isinstance(actual, Finding):
        return NO_FAULT, repr(actual)
    return tensors.show(expected, actual)


def without_comments(text: str) -> str:
    return re.sub(r"//.*|/\*[\s\S]*?\*/", "", text)


def with_misplaced_barriers(call, answer: str):
    """`call()`. If a barrier is not for all threads, a KernelError is "barrier-in-branch"."""
    try:
        return call()
    except KernelError as error:
        is_divergent = error.kind == "divergent-barrier"
        if is_divergent or kind_of(error) == "order" and barrier_in_branch(answer):
            error.kind = "barrier-in-branch"
        raise


def barrier_in_branch(text: str) -> bool:
    """Whether a __syncthreads() is in a branch or loop that not all threads take alike.

    Or after a return in one. A condition depends on the thread if its text names threadIdx, or
    a variable that was made from it.
    """
    text = without_comments(text)
    own = {"threadIdx"}
    assigned = [
        (name, set(re.findall(r"\w+", value)))
        for name, value in re.findall(r"(\w+)\s*=(?!=)([^;,]*)", text)
    ]
    for _ in range(3):
        own |= {name for name, words in assigned if own & words}
    for branch in re.finditer(r"\b(if|for|while)\s*\(", text):
        body = _end(text, branch.end() - 1, ")")
        if not own & set(re.findall(r"\w+", text[branch.end() : body])):
            continue
        end = _end(text, body)
        if otherwise := re.match(r"\s*else\b", text[end:]):
            end = _end(text, end + otherwise.end())
        rest = text[end : end + max(text[end:].find("\n}"), 0)]
        reached = text[body:end] + rest * ("return" in text[body:end])
        if "__syncthreads" in reached:
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


@contextmanager
def on_stream(library: CudaLibrary, stream: int):
    """Within this, launchers get a stream. Gives the Launches.

    Raises KernelError of the kind "stream-ignored" for a launch on another stream.
    """
    with library.launches(stream=stream) as launches:
        yield launches
    for launch in launches:
        if launch.stream != stream:
            raise KernelError(
                f"The launcher was given {_stream(stream)}, "
                f"and launched {launch.kernel} on {_stream(launch.stream)}.",
                "stream-ignored",
            )


def _stream(number: int) -> str:
    return f"stream {number:#x}" if number else "the default stream"


def asked(library, call):
    """The Launches of `call()`, and what it `returned`. Its first launch is made to fail."""
    with library.launches(stream=STREAM, failing=1) as launches, suppress(KernelError):
        call()
    return launches


def own_text(name: str) -> str:
    """A part of a check, from the folder of its lesson."""
    (file,) = Path(__file__).parents[1].glob(f"lesson_*/{name}")
    return file.read_text(encoding="utf-8")


def build(answer: str, before: str = "", wrapper: str = "", shape: Shape | None = None):
    """The checked library of `answer`.

    before: files of kernels/ that come before it, without ".cuh".
    wrapper: the check's own text, which comes after it.
    shape: of the ladder's kernels that it is built for.
    """
    texts = {f"{name}.cuh": read_kernel(f"{name}.cuh") for name in before.split()}
    if shape:
        texts["ladder/shape.cuh"] = shape_text(shape)
    texts["your code"] = answer
    if wrapper:
        texts["the check"] = own_text(wrapper)
    return compiled(texts)


def build_all(
    answer: str, before: str, wrapper: str, shapes: Iterable[Shape]
) -> dict[Shape, CudaLibrary]:
    """As `build`, for each of the shapes."""
    return {shape: build(answer, before, wrapper, shape) for shape in shapes}


def paged_params(**given) -> dict:
    """The fields of PagedAttentionParams for a kernel that looks at those in `given` only."""
    pointers = ("q", "k_cache", "v_cache", "block_table", "context_lens", "scores")
    nothing = ("q_stride", "max_blocks_per_seq", "max_context_len", "dtype")
    one = ("num_kv_heads", "block_size", "scale")
    others = dict.fromkeys(pointers) | dict.fromkeys(nothing, 0) | dict.fromkeys(one, 1)
    return others | given


def compiled(texts: dict[str, str]) -> CudaLibrary:
    """The checked library of these texts, by the names that messages have for them."""
    library = build_cuda(*texts.values(), names=tuple(texts), target="checked", name="check")
    library.options(step_limit=STEP_LIMIT)
    return library
