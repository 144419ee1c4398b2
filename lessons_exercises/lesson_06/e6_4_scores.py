"""Exercise 6.4: the scores of one query, a thread for each token."""

import random

import torch

from lessons_exercises import tensors
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
    show,
    size,
    slots_of,
    with_misplaced_barriers,
)
from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise, Text

NOT_WRITTEN = -7777.0  # what new_scores() holds


def scores(batch):
    """paged_scores() for every sequence and head. Accumulates in float64."""
    result, batch = batch.new_scores(), batch.double()
    group = batch.q.shape[1] // batch.k_cache.shape[2]
    for seq, length in enumerate(batch.context_lens.tolist()):
        slots = slots_of(batch.block_table, seq, length, batch.k_cache.shape[1])
        keys = batch.k_cache.flatten(0, 1)[slots].repeat_interleave(group, dim=1)
        products = torch.einsum("thd,hd->ht", keys, batch.q[seq])
        result[seq, :, :length] = (products * batch.scale).float()
    return result


def prepare(answer):
    given = ("numbers.cuh", "paged_params.cuh", "paged_address.cuh", "block_reduce.cuh")
    library = build(answer, *given, wrapper="scores_check.cu")

    def native(batch):
        result = batch.new_scores()
        fields = batch.fields(scores=batch.new_scores(), out=result)
        with_misplaced_barriers(lambda: library.scores(**fields), answer)
        return result

    native.far = lambda batch: reached(lambda: native(batch))
    return native


def cases():
    yield from (
        Case((1,), 1, 1, 1, 4),
        Case((1,), 1, 1, 8, 4),
        Case((3,), 1, 1, 8, 4),
        Case((4, 5), 2, 2, 8, 4),
        Case((0, 3, 9), 6, 2, 8, 4),
        Case((8, 2), 7, 1, 12, 4, dtype=1),
        Case((5, 16, 17), 4, 4, 16, 16, dtype=2),
        Case((7, 4), 6, 3, 8, 3, gap=5, seed=1),
        Case((128, 127), 2, 1, 8, 16),
        Case((129, 300), 2, 2, 8, 16, dtype=1),
        Case((20, 6), 3, 1, 200, 8),
        Case((2,), 2, 2, 256, 4, dtype=1),
        Case((6, 40), 14, 2, 64, 16, dtype=2, spare_context=9),
        Case((3,), 1, 1, 16, 4, scale=0.5),
        FAR,
    )


def hidden(seed):
    """Batches of any shape.

    Then an empty context, more tokens than threads and a large head.
    """
    chance = random.Random(seed)
    yield from (drawn(chance) for _ in range(10))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
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
    """The scores of the tokens that exist. What lies after them does not matter."""
    if isinstance(case, FarCase):
        return observe_far(subject, case)
    batch = batch_of(case)

    def run():
        result = subject(batch)
        behind = torch.arange(batch.max_context_len) >= batch.context_lens[:, None, None]
        return result.masked_fill(behind, 0.0)

    return result_of(run, names=("k_cache", "scores", "block_table", "context_lens"))


def show_scores(expected, actual):
    return tuple(
        text if isinstance(text, Text) else text.replace(f"{NOT_WRITTEN:g}", "never written")
        for text in show(expected, actual)
    )


EXERCISE = Exercise(
    id="6.4",
    title="the scores",
    answer_name="paged_scores",
    language="cuda",
    reference=scores,
    prepare=prepare,
    cases=cases,
    size=size,
    hidden=hidden,
    observe=observe,
    chancy=lambda case: isinstance(case, FarCase),  # other mistakes may give anything there
    describe=lambda case: (
        case.describe()
        if isinstance(case, FarCase)
        else f"{describe(case)}; the scores for each (sequence, head, token)"
    ),
    same=tensors.same,
    show=show_scores,
    points=2,
    mistakes=Bank("6.4", "paged_scores", __file__, globals(), prepare),
    hints=(
        (
            "First bring the query into q, all threads together: "
            "thread 0 takes the elements 0, blockDim.x, 2 * blockDim.x and so on. "
            "to_float() makes a float of each. Then wait until all of it is there."
        ),
        (
            "Tokens are shared out in the same way: thread t takes the tokens t, "
            "t + blockDim.x and so on."
        ),
        (
            "For each token, cache_offset() says where its key begins in k_cache. "
            "Multiply the key with q element by element and add up. "
            "Then scale the sum and write it to scores[token]."
        ),
    ),
)
