"""Exercise 6.5: the softmax over a block's threads, and the weighted values."""

import random
import re
from dataclasses import dataclass, replace

import torch

from lessons_exercises.lesson_06.native import (
    FAR,
    Case,
    FarCase,
    batch_of,
    build,
    describe,
    drawn,
    observe_far,
    reached,
    result_of,
    same,
    show,
    size,
    slots_of,
)
from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise
from lessons_lib.cuda_on_cpu.reports import KernelError

THREADS = 128


@dataclass(frozen=True)
class SimilarValues(Case):
    """All values near 1, and all scores the same: a long sum of numbers of one size."""


def made(case):
    batch = batch_of(case)
    if not isinstance(case, SimilarValues):
        return batch
    return replace(batch, q=torch.zeros_like(batch.q), v_cache=batch.v_cache / 8 + 1)


def describe_case(case):
    if isinstance(case, FarCase):
        return case.describe()
    more = ", all values near 1 and all scores 0" if isinstance(case, SimilarValues) else ""
    return (
        f"{describe(replace(case, spread=case.spread or 1.0))}{more}; "
        "the output for each (sequence, head, element)"
    )


def attended(batch):
    """What the kernel gives. Accumulates in float64."""
    dtype, batch = batch.q.dtype, batch.double()
    out = torch.zeros(batch.q.shape, dtype=torch.float64)
    group = batch.q.shape[1] // batch.k_cache.shape[2]
    for seq, length in enumerate(batch.context_lens.tolist()):
        slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])
        keys, values = (
            cache.flatten(0, 1)[slots].repeat_interleave(group, 1)
            for cache in (batch.k_cache, batch.v_cache)
        )
        scores = batch.scale * torch.einsum("hi,thi->ht", batch.q[seq], keys)
        out[seq] = torch.einsum("ht,thi->hi", torch.softmax(scores, -1), values)
    return out.to(dtype)


def prepare(answer):
    library = build(
        answer,
        "numbers.cuh",
        "paged_params.cuh",
        "paged_address.cuh",
        "paged_scores.cuh",
        "block_reduce.cuh",
        wrapper="values_check.cu",
    )
    first_of_pass_2 = 1 + answer[: max(answer.find("paged_values"), 0)].count("\n")

    def attend(batch):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        scores = batch.new_scores() if batch.workspace else None
        try:
            library.values(**batch.fields(out=out, scores=scores))
        except KernelError as error:
            error.kind = refined(error, first_of_pass_2)
            raise
        return out

    def look_far(batch):
        weights = torch.full((*batch.q.shape[:2], batch.max_context_len), 1.0)
        library.values_alone(**batch.fields(out=torch.empty(batch.q.shape), scores=weights))

    attend.far = lambda batch: reached(lambda: look_far(batch))
    return attend


def refined(error, first_of_pass_2):
    """The kind of an error, and for one of order between which parts of the kernel.

    Such as "order: pass 2 and softmax".
    """
    places = re.findall(r"^    ([^,\n]+), line (\d+): ", str(error), re.MULTILINE)
    if any(source == "block_reduce.cuh" for source, _ in places):
        return "within a block_ function"
    if error.kind not in ("race", "missing-syncwarp") or len(places) != 2:
        return error.kind
    return "order: " + " and ".join(
        sorted(
            (
                source
                if source != "your code"
                else "pass 2"
                if int(line) >= first_of_pass_2
                else "softmax"
            )
            for source, line in places
        )
    )


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4),
        Case((1,), 1, 1, 4, 4),
        Case((3,), 1, 1, 4, 4),
        Case((4, 5), 2, 2, 8, 4),
        Case((0,), 1, 1, 8, 4),
        Case((0, 3, 9), 6, 2, 8, 4),
        Case((6,), 1, 1, 8, 4, shift=200.0),
        Case((6,), 1, 1, 8, 4, shift=-200.0),
        Case((6,), 1, 1, 8, 4, shift=-20_000.0, spread=0.0),
        Case((8, 2), 7, 1, 12, 4, workspace=True),
        Case((2, 17, 16), 4, 4, 16, 16, dtype=1),
        Case((7, 4), 6, 3, 8, 3, seed=1, dtype=2),
        Case((128, 127), 2, 1, 8, 16),
        Case((129, 300), 2, 2, 8, 16, spread=3.0, workspace=True),
        Case((20, 6), 3, 1, 200, 8),
        Case((2,), 2, 2, 256, 4, dtype=1),
        Case((11, 140), 6, 2, 8, 16, spare_context=30),
        SimilarValues((600,), 1, 1, 2, 16, dtype=2),
        FAR,
    )


def hidden(seed):
    """As those of the scores, with the scores in a workspace as well.

    Or with all of them far from 0.
    """
    chance = random.Random(seed)
    yield from (drawn(chance, workspace=number % 3 == 0) for number in range(9))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
    yield from (
        drawn(chance, context_lens=(chance.randint(3, 9),), dtype=0, shift=shift)
        for shift in (200.0, -200.0)
    )
    yield Case(
        (chance.randint(3, 9),),
        1,
        1,
        8,
        4,
        shift=-20_000.0 - chance.randint(1, 99),
        spread=0.0,
    )
    yield SimilarValues(
        (chance.randint(560, 640),), 1, 1, 2, 16, dtype=2, seed=chance.randrange(2**31)
    )
    yield drawn(
        chance,
        context_lens=(chance.randint(130, 250),),
        num_q_heads=1,
        num_kv_heads=1,
        head_size=8,
    )
    yield drawn(chance, num_q_heads=1, num_kv_heads=1, head_size=chance.randint(130, 250))
    yield FarCase(
        (chance.randint(2, 9),),
        1,
        1,
        chance.choice((4, 8, 12)),
        chance.randint(2, 9),
        seed=chance.randrange(2**31),
    )


def observe(subject, case):
    if isinstance(case, FarCase):
        return observe_far(subject, case)
    return result_of(lambda: subject(made(case)), names=("out", "v_cache"))


EXERCISE = Exercise(
    id="6.5",
    title="softmax and values",
    answer_name="paged_values",
    language="cuda",
    reference=attended,
    prepare=prepare,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe_case,
    # With this many tokens or elements all threads may have something to do, and a call in a
    # branch happens to be right. Where the block lies far away, mistakes that other cases
    # find may give anything.
    chancy=lambda case: (
        max(case.context_lens) >= THREADS
        or case.head_size > THREADS
        or isinstance(case, FarCase)
    ),
    same=same,
    show=show,
    points=2,
    mistakes=Bank("6.5", "paged_values", __file__, globals(), prepare),
    hints=(
        (
            "The softmax takes three rounds over a thread's own tokens: "
            "t, t + blockDim.x and so on. Find the largest score. "
            "Make weights and add them up. Divide. "
            "After the first and the second round the threads combine their results."
        ),
        (
            "A thread without a token takes part in block_max() and block_sum() as well. "
            "What does it bring, so that it changes nothing?"
        ),
        (
            "In pass 2 each thread takes an element of the head and goes through all tokens. "
            "Its sum is in its own variable, so there is nothing to share and nothing "
            "to wait for."
        ),
        (
            "Without a token, the loop over the tokens does nothing. "
            "Is the output written all the same?"
        ),
    ),
)
