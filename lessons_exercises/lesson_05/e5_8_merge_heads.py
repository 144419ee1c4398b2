"""Exercise 5.8: the heads of a token, side by side."""

import math
import random

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.mistakes import Bank
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Text


def merge_heads(o: Tensor) -> Tensor:
    """Each token's heads side by side, head 0 first.

    o: (num_tokens, num_heads, head_size), of any dtype and any layout in memory: it may be a
        transposed view.
    Returns (num_tokens, num_heads * head_size), of the same dtype.
    """
    # BEGIN SOLUTION 5.8
    return o.flatten(start_dim=1)
    # END SOLUTION


# (seed, tokens, heads, head size), then the special ones: (…, dtype, are the heads first in
# memory)
USUAL = (torch.float32, False)
CASES = [
    (*case, *USUAL)
    for case in (
        (1, 1, 1, 2),
        (2, 1, 2, 2),
        (3, 2, 1, 3),
        (4, 2, 2, 2),
        (5, 2, 3, 2),
        (6, 3, 2, 4),
        (7, 5, 7, 16),
        (8, 17, 6, 8),
    )
] + [
    (9, 3, 2, 4, torch.float64, False),
    (10, 3, 2, 4, torch.float16, False),
    (11, 3, 2, 4, torch.float32, True),
    (12, 3, 2, 4, torch.bfloat16, False),
]
PRINTED = 12  # as many numbers can be read in a message


def hidden(seed):
    """Usual ones, then other types and a transposed view."""
    chance = random.Random(seed)
    kinds = [USUAL] * 8 + [
        (torch.float64, False),
        (torch.float16, False),
        (torch.float32, True),
        (torch.bfloat16, False),
    ]
    for kind in kinds:
        yield (
            chance.randrange(2**31),
            chance.randint(2, 9),
            chance.randint(2, 8),
            chance.randint(2, 16),
            *kind,
        )


def is_printed(case):
    """Whether each number says where it is: 211 is of token 2, head 1 and place 1."""
    return math.prod(case[1:4]) <= PRINTED and case[4:] == USUAL


def make_heads(case):
    seed, num_tokens, num_heads, head_size, dtype, heads_first = case
    if is_printed(case):
        token, head, place = (
            torch.arange(size) for size in (num_tokens, num_heads, head_size)
        )
        o = 100 * (token[:, None, None] + 1) + 10 * head[:, None] + place
    else:
        o = torch.randn(
            num_tokens, num_heads, head_size, generator=torch.Generator().manual_seed(seed)
        )
    o = o.to(dtype)
    return o.transpose(0, 1).contiguous().transpose(0, 1) if heads_first else o


def observe(answer, case):
    o = make_heads(case)
    result = answer(o)
    if not torch.equal(o, make_heads(case)):
        return Text("o has been changed")
    if isinstance(result, torch.Tensor) and result.dtype != o.dtype:
        return Text(f"{result.dtype} numbers, and o has {o.dtype}")
    return tensors.values(result)


def describe(case):
    _, num_tokens, num_heads, head_size, dtype, heads_first = case
    if is_printed(case):
        return f"o = {make_heads(case).long().tolist()}"
    special = (
        f", {dtype}" * (dtype != torch.float32)
        + ", a transposed view (the heads are first in memory)" * heads_first
    )
    return (
        f"o with {counted(num_tokens, 'token')}, {counted(num_heads, 'head')}, "
        f"head_size {head_size}{special}"
    )


EXERCISE = Exercise(
    id="5.8",
    title="the heads of a token, side by side",
    answer_name="merge_heads",
    reference=merge_heads,
    cases=lambda: CASES,
    size=lambda case: math.prod(case[1:4]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=lambda case: case[4:] != USUAL,
    same=tensors.same,
    show=tensors.show,
    mistakes=Bank("5.8", "merge_heads", __file__, globals()),
    hints=(
        (
            "In which order do the numbers of o lie in memory? "
            "Which numbers should be in row 0 of the result?"
        ),
        (
            "Read token by token and head by head, "
            "the numbers are in the right order already. Only two neighbouring dimensions "
            "have to become one, wherever the numbers lie in memory."
        ),
    ),
)
