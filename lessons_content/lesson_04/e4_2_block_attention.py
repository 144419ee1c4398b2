"""Exercise 4.2: attention over one block, as (o, m, l).

Do it for one pair on paper: scores of the block's slots, mask, maximum, exponentials, their
sum. Which dimension of each tensor counts the pairs?

`share_heads(k, num_q_heads)` gives each query head its keys. After that q and k have the same
heads, and `torch.einsum` can multiply them pair by pair and head by head.

A slot comes after the tokens when its number is not below num_valid: compare
`torch.arange(block_size)` with num_valid as a column.

For a block without a token: subtract `finite(m)` instead of m, and do not divide by an l of 0.
"""

import math

import torch

from lessons_content.exercises.kit import exercise, named_where, tensors
from lessons_content.lesson_04.inputs import NAN, POISON, call_for_parts, generator, listed
from paged_attention.attention import decode

# (tokens in each block, block size, query heads, KV heads, head size, scores, what the slots
# after the tokens hold, seed)
CASES = [
    ((1,), 1, 1, 1, 4, "usual", POISON, 0),
    ((2,), 2, 1, 1, 4, "usual", POISON, 22),
    ((4,), 4, 2, 2, 16, "usual", POISON, 2),
    ((1,), 2, 2, 2, 4, "usual", POISON, 3),
    ((3,), 4, 2, 2, 4, "usual", POISON, 4),
    ((4, 1), 4, 1, 1, 4, "usual", POISON, 5),
    ((2,), 2, 6, 2, 4, "usual", POISON, 6),
    ((0,), 2, 1, 1, 4, "usual", POISON, 7),
    ((3, 0, 1), 3, 2, 1, 4, "usual", POISON, 8),
    ((2,), 2, 1, 1, 4, "near +500", POISON, 9),
    ((2,), 2, 1, 1, 4, "near -500", POISON, 10),
    ((16, 5), 16, 14, 2, 8, "usual", POISON, 11),
    ((7, 0, 3), 8, 9, 3, 4, "near -500", POISON, 12),
    ((16, 15, 1), 16, 6, 2, 4, "near +500", POISON, 13),
    ((), 4, 3, 1, 8, "usual", POISON, 14),
    ((16,) * 3, 16, 4, 2, 24, "usual", POISON, 15),
    ((1,), 2, 1, 1, 4, "usual", NAN, 16),
    ((2, 0, 3), 3, 2, 1, 4, "usual", NAN, 17),
    ((16, 5), 16, 6, 2, 16, "usual", NAN, 18),
]
# exp(500) overflows, exp(-500) is 0; and float32 is exact enough there for
# exp(logsumexp(scores) - m), a right way to l.
LEVELS = {"near +500": 500.0, "near -500": -500.0}


def hidden(chance):
    """Blocks with any number of tokens, some without; NaN after the tokens at the end."""
    for number in range(15):
        size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        counts = [
            chance.choice((0, 1, size, chance.randint(1, size)))
            for _ in range(1 + number // 3)
        ]
        heads = num_kv_heads * chance.randint(1, 5), num_kv_heads, chance.choice((4, 16, 64))
        scores = ("usual", "usual", *LEVELS)[number % 4]
        after = POISON if number < 13 else NAN
        yield tuple(counts), size, *heads, scores, after, chance.randrange(2**31)


FEW = 24  # numbers of q, k and v that a message shows


def is_small(case):
    return bool(case[0]) and size(case)[0] <= FEW


def tensors_of(case):
    """q, k, v and num_valid. Small tensors hold small whole numbers."""
    counts, block_size, num_q_heads, num_kv_heads, head_size, scores, poison, seed = case
    source, num_valid = generator(seed), torch.tensor(counts, dtype=torch.int64)
    q = torch.randn(len(counts), num_q_heads, head_size, generator=source)
    k, v = torch.randn(2, len(counts), block_size, num_kv_heads, head_size, generator=source)
    if is_small(case):
        q, k, v = ((2 * x).round() + 0.0 for x in (q, k, v))  # no -0
    if level := LEVELS.get(scores):
        # Whole numbers, so that float32 gives the scores without an error: level + 0 to 3.
        q.zero_()[..., 0] = math.sqrt(head_size)
        k[..., 0] = level + torch.randint(4, k.shape[:-1], generator=source)
    after = torch.arange(block_size) >= num_valid[:, None]
    k[after], v[after] = poison, poison
    return {"q": q, "k": k, "v": v, "num_valid": num_valid}


def observe(answer, case):
    nothing = not case[0] or 0 in case[0]
    return named_where(nothing, lambda: call_for_parts(answer, **tensors_of(case)))


def size(case):
    """How many numbers the three tensors have, and the tokens. No block is more than one."""
    counts, block_size, num_q_heads, num_kv_heads, head_size, *_ = case
    numbers = (num_q_heads + 2 * block_size * num_kv_heads) * head_size
    return (len(counts) or 2) * numbers, sum(counts)


def in_words(name, x):
    first = x.flatten()[0].item()
    if x.numel() > 3 and (x == first).all():
        return f"{name} of shape {tuple(x.shape)}: all {first:g}"
    return listed(**{name: x})


def describe(case):
    counts, block_size, _, _, _, scores, poison, _ = case
    given = tensors_of(case)
    if is_small(case):
        return ", ".join(in_words(name, x) for name, x in given.items())
    q, k = (tuple(given[name].shape) for name in "qk")
    words = f"q of shape {q}, k and v of shape {k}, num_valid = {list(counts)}"
    if scores in LEVELS:
        words += f", every score {scores}"
    if any(count < block_size for count in counts):
        held = "NaN" if math.isnan(poison) else f"{poison:,.0f}"
        words += f"; all slots after the valid ones hold {held}"
    return words


EXERCISE = exercise(
    globals(),
    tensors,
    reference=tensors.in_double(decode.block_attention),
    chancy=lambda case: math.isnan(case[6]),  # what a mistake makes of NaN depends on details
    points=2,
)
