"""Exercise 6.8: a bug hunt.

One fault at a time: hunt(bug_hunt) runs small cases first and stops at the first one that goes
wrong. Repair that, run the cell of the kernel again, and hunt again. Do not look for the next
fault before this one is gone.

If there is a report, begin at the line that it names. Ask what that line takes for granted:
that memory is there, that some thread has written it, that an entry belongs to this sequence.

If the numbers are wrong, hunt() says which rows of the output, and which keys were read for
the first of them. Work out by hand which keys that head should read, from the block table that
is shown. If they are the right ones, the fault is in what is done with them.

The parameters' struct gives the sizes of each tensor. Compare each index in the kernel with
them, the largest step first.
"""

import functools
import math
import re
from dataclasses import dataclass, replace

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import Text, counted, exercise, listed
from lessons_content.lesson_06 import batches
from lessons_content.lesson_06.batches import FarCase
from lessons_content.lesson_06.given_text import IsGiven
from lessons_lib.cuda_on_cpu.code_text import mask
from paged_attention.attention.bug_hunt import CASES, HuntCase, build_hunted, expected_output
from paged_attention.attention.paged_kernel import attn_paged_cuda

VERY_MANY_TOKENS = max(CASES, key=lambda case: max(case.context_lens))


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


# Each fault has its own case in CASES. The case shows it, whether or not the faults of later
# cases are still there. So the first case that fails names the first fault that is left.
#
# What hunt() does not run: another length instead of its long one, so that an array of just
# that size is too small, and faults that a repair can bring in.
LONGER = replace(VERY_MANY_TOKENS, title="11,400 tokens", context_lens=(11_400,))
EMPTY_LARGE_HEAD = HuntCase(
    "no token, two heads of size 256", (0,), num_q_heads=2, num_kv_heads=2, head_size=256
)
LOW_SCORES = LowScores("3 tokens, all scores near -200", (3,))
SPACED = SpacedQueries("two sequences, queries with room between them", (2, 3), num_q_heads=3)
HIGH_SCORE = HighScore("two sequences, in each a score 200 above the others", (3, 3))
FAILING = FailingLaunch("a launch that is made to fail", (2,))
RETURNS_ERROR = Text("an error is returned")
RETURNS_ZERO = Text("0 is returned, as if all were well")
HUNTED = [LONGER if case is VERY_MANY_TOKENS else case for case in CASES]
CHECKED = [*HUNTED, EMPTY_LARGE_HEAD, LOW_SCORES, SPACED, HIGH_SCORE, FAILING, batches.FAR]


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


def hidden(chance):
    """Batches in which several faults would show; then low scores and many tokens."""

    def drawn(kind, *lengths, **sizes):
        return kind(f"contexts of {listed(lengths)} tokens", lengths, **sizes)

    for number in range(8):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        possible = (0, 1, block_size, *range(2, 4 * block_size))
        lengths = chance.choices(possible, k=1 + number // 3)
        if len(lengths) == 3:
            lengths[1] = 0  # zeros that go to other blocks' rows
        yield drawn(
            HuntCase,
            *lengths,
            num_q_heads=num_kv_heads * chance.randint(1, 4),
            num_kv_heads=num_kv_heads,
            head_size=chance.choice((4, 8, 20)),
            block_size=block_size,
            spare_entries=chance.randint(0, 2),
        )
    yield drawn(LowScores, chance.randint(2, 9), 5)
    yield drawn(HuntCase, chance.randint(280, 400), block_size=16)
    yield drawn(HuntCase, chance.randint(2, 9), head_size=chance.randint(140, 250))
    yield drawn(HuntCase, chance.randint(11_000, 11_400), head_size=1, block_size=16)
    lengths = chance.randint(2, 9), chance.randint(2, 9)
    yield drawn(SpacedQueries, *lengths, num_q_heads=chance.randint(2, 5))
    yield drawn(FailingLaunch, chance.randint(2, 9))
    yield batches.drawn_far(chance)


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


EXERCISE = exercise(
    globals(),
    kernels,
    answer_name="bug_hunt",
    reference=expected_output,
    cases=lambda: CHECKED,
    size=lambda case: 1,  # they come as in hunt(), which takes one fault after the other
    # the first case that fails names the fault; later cases show later faults as well
    chancy=lambda case: True,
    is_given=IsGiven(),
    points=3,
    time_limit=30.0,  # the long context takes a second, and more on a busy machine
)
