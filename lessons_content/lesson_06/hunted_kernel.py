"""Whether the text that 6.8 gives to be repaired is as it was."""

import functools
import math
import re
from dataclasses import dataclass

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import Text, counted
from lessons_content.lesson_06 import batches
from lessons_content.lesson_06.batches import FarCase
from lessons_lib.cuda_on_cpu.code_text import mask
from paged_attention.attention.bug_hunt import CASES, HuntCase, build_hunted
from paged_attention.attention.paged_kernel import attn_paged_cuda


class IsGiven:
    """Whether nothing but comments and spaces has been changed.

    A sandbox cannot make the text that was given, so it is sent there.
    """

    def __init__(self, given: str = ""):
        self.given = given

    def __call__(self, answer: str) -> bool:
        return len({"".join(mask(text).split()) for text in (answer, self.text())}) == 1

    def __reduce__(self):
        return IsGiven, (self.text(),)

    def text(self) -> str:
        if not self.given:
            from lessons_lib.source.lesson import given_kernel

            self.given = given_kernel("bug_hunt.cu", "6.8")
        return self.given


@dataclass(frozen=True)
class LowScores(HuntCase):
    """All scores near -200, so that exp() of each is 0 in float32."""

    def tensors(self):
        tensors = super().tensors()
        tensors["k_cache"][..., 0] = 1.0
        tensors["q"][..., 0] = -200 * math.sqrt(self.head_size)
        return tensors


@dataclass(frozen=True)
class HighScore(HuntCase):
    """One score is 200 above the others: of token 1 in sequence 0, token 2 in sequence 1, …"""

    def tensors(self):
        tensors = super().tensors()
        tensors["q"][..., 0] = 200 * math.sqrt(self.head_size)
        tensors["k_cache"][..., 0] = 0.0
        for sequence in range(len(self.context_lens)):
            entry, offset = divmod(sequence + 1, self.block_size)
            tensors["k_cache"][tensors["block_table"][sequence, entry], offset, :, 0] = 1.0
        return tensors


@dataclass(frozen=True)
class SpacedQueries(HuntCase):
    """Other numbers between the queries of two sequences: q is a part of a larger tensor."""

    def tensors(self):
        tensors = super().tensors()
        wide = torch.nn.functional.pad(tensors["q"], (0, 0, 0, 1), value=7.0)
        return tensors | {"q": wide[:, :-1]}


@dataclass(frozen=True)
class FailingLaunch(HuntCase):
    """The launch is made to fail, and what counts is what the launcher returns."""


RETURNS_ERROR = Text("an error is returned")
RETURNS_ZERO = Text("0 is returned, as if all were well")


def prepare(source: str):
    """The learner's kernel as a function of tensors."""
    library = build_hunted(source)
    run = functools.partial(attn_paged_cuda, library=library)
    aliased = len(re.findall(r"\bextern\s+__shared__\b", mask(source))) > 1

    def attend(**inputs):
        # batches of several sequences are launched on the default stream
        stream = kernels.STREAM if len(inputs["q"]) == 1 else 0
        with kernels.on_stream(library, stream):
            try:
                return kernels.with_misplaced_barriers(lambda: run(**inputs), source)
            except kernels.KernelError as error:
                # With one token, only one thread has a score to write over the query.
                is_alias = aliased and inputs["context_lens"].max() > 1
                if kernels.kind_of(error) == "order" and is_alias:
                    error.kind = "shared-alias"
                raise

    def failing(case):
        launches = kernels.asked(library, lambda: run(**case.tensors()))
        return RETURNS_ERROR if launches.returned else RETURNS_ZERO

    def look_far(batch):  # attn_paged_cuda() would refuse its table
        library.paged_attention(**batch.fields(out=torch.empty(batch.q.shape)))

    attend.failing, attend.look_far = failing, look_far
    return attend


def observe(attend, case):
    """The output or what was found; of a launch that fails, what the launcher returns."""
    if isinstance(case, FarCase):
        return batches.observe_far(attend, case)
    if isinstance(case, FailingLaunch):
        return attend.failing(case) if hasattr(attend, "failing") else RETURNS_ERROR
    return kernels.result_of(lambda: attend(**case.tensors()), names=("context_lens",))


def describe(case):
    if isinstance(case, FarCase):
        return case.describe()
    where = "a case that hunt() does not run"
    if case in CASES:
        where = f"case {CASES.index(case) + 1} of hunt()"
    return (
        f"{where}, {case.title}: {counted(case.num_q_heads, 'query head')} "
        f"and {counted(case.num_kv_heads, 'KV head')} of size {case.head_size}, "
        f"blocks of {case.block_size}"
    )
