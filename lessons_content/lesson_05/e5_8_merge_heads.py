"""Exercise 5.8: the heads of a token, side by side.

In which order do the numbers of o lie in memory? Which numbers should be in row 0 of the
result?

Read token by token and head by head, the numbers are in the right order already. Only two
neighbouring dimensions have to become one, wherever the numbers lie in memory.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lessons_content.exercises import drawn
from lessons_content.exercises.kit import Text, counted, exercise, tensors


def merge_heads(o: Tensor) -> Tensor:
    """Each token's heads side by side, head 0 first.

    o: (num_tokens, num_heads, head_size), of any dtype and any layout in memory: it may be a
        transposed view.
    Returns (num_tokens, num_heads * head_size), of the same dtype.
    """
    # BEGIN SOLUTION 5.8
    return o.flatten(start_dim=1)
    # END SOLUTION


class Case(NamedTuple):
    """heads_first: whether they are that in memory, and o is a transposed view."""

    seed: int
    num_tokens: int
    num_heads: int
    head_size: int
    dtype: torch.dtype = torch.float32
    heads_first: bool = False


UNUSUAL = [  # dtype, heads_first
    (torch.float64, False),
    (torch.float16, False),
    (torch.float32, True),
    (torch.bfloat16, False),
]
CASES = [
    Case(1, 1, 1, 2),
    Case(2, 1, 2, 2),
    Case(3, 2, 1, 3),
    Case(4, 2, 2, 2),
    Case(5, 2, 3, 2),
    Case(6, 3, 2, 4),
    Case(7, 5, 7, 16),
    Case(8, 17, 6, 8),
    *(Case(seed, 3, 2, 4, *kind) for seed, kind in enumerate(UNUSUAL, 9)),
]
PRINTED = 12  # as many numbers can be read in a message


def hidden(chance):
    """Usual ones, then other types and a transposed view."""
    for kind in [()] * 8 + UNUSUAL:
        seed, num_tokens = chance.randrange(2**31), chance.randint(2, 9)
        num_heads, head_size = chance.randint(2, 8), chance.randint(2, 16)
        yield Case(seed, num_tokens, num_heads, head_size, *kind)


def is_unusual(case):
    return case[4:] in UNUSUAL


def is_printed(case):
    """Whether each number says where it is: 211 is of token 2, head 1 and place 1."""
    return math.prod(case[1:4]) <= PRINTED and not is_unusual(case)


def make_heads(case):
    if is_printed(case):
        token, head, place = map(torch.arange, case[1:4])
        o = 100 * (token[:, None, None] + 1) + 10 * head[:, None] + place
    else:
        o = drawn.normal(*case[1:4], generator=torch.Generator().manual_seed(case.seed))
    o = o.to(case.dtype)
    return o.transpose(0, 1).contiguous().transpose(0, 1) if case.heads_first else o


def observe(answer, case):
    o = make_heads(case)
    result = answer(o)
    if not torch.equal(o, make_heads(case)):
        return Text("o has been changed")
    if isinstance(result, torch.Tensor) and result.dtype != o.dtype:
        return Text(f"{result.dtype} numbers, and o has {o.dtype}")
    return tensors.values(result)


def describe(case):
    if is_printed(case):
        return f"o = {make_heads(case).long().tolist()}"
    tokens, heads = counted(case.num_tokens, "token"), counted(case.num_heads, "head")
    words = f"o with {tokens}, {heads}, head_size {case.head_size}"
    if case.dtype != torch.float32:
        words += f", {case.dtype}"
    if case.heads_first:
        words += ", a transposed view (the heads are first in memory)"
    return words


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="merge_heads",
    size=lambda case: math.prod(case[1:4]),
    chancy=is_unusual,
)
