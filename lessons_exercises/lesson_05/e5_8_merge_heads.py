"""Exercise 5.8: the heads of a token, side by side."""

import math
import random

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text


def merge_heads(o: Tensor) -> Tensor:
    """Each token's heads side by side, head 0 first.

    o: (num_tokens, num_heads, head_size), of any dtype and any layout in memory: it may be a
        transposed view.
    Returns (num_tokens, num_heads * head_size), of the same dtype.
    """
    # BEGIN SOLUTION 5.8
    return o.flatten(start_dim=1)
    # END SOLUTION


def heads_scrambled(o):
    return o.transpose(0, 1).reshape(len(o), -1)


def heads_interleaved(o):
    return o.transpose(1, 2).flatten(1)


def heads_reversed(o):
    return o.flip(1).flatten(1)


def heads_summed(o):
    return o.sum(1)


def heads_averaged(o):
    return o.mean(1)


def first_head_only(o):
    return o[:, 0]


def tokens_merged(o):
    return o.flatten(0, 1)


def head_major(o):
    return o.transpose(0, 1).flatten(1)


def not_merged(o):
    return o


def taken_for_heads_first(o):
    num_tokens, num_heads, head_size = o.shape
    return o.reshape(num_heads, num_tokens, head_size).transpose(0, 1).flatten(1)


def one_number_of_each_piece(o):
    return o.reshape(-1, len(o)).T


def one_row(o):
    return o.flatten()


def heads_below_each_other(o):
    return torch.cat(o.unbind(1))


def always_float32(o):
    return o.flatten(1).float()


def o_changed(o):
    o.transpose_(0, 1)
    return o.transpose(0, 1).flatten(1)


def view_of_any_layout(o):
    return o.view(len(o), -1)


def view_of_a_transposed_copy(o):
    return o.transpose(0, 1).contiguous().transpose(0, 1).view(len(o), -1)


def heads_assumed_adjacent(stride):
    return lambda o: o.as_strided((len(o), o[0].numel()), (stride(o), 1))


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
]


def hidden(seed):
    """Usual ones, then other types and a transposed view."""
    chance = random.Random(seed)
    kinds = [USUAL] * 8 + [
        (torch.float64, False),
        (torch.float16, False),
        (torch.float32, True),
    ]
    for kind in kinds:
        yield (
            chance.randrange(2**31),
            chance.randint(2, 9),
            chance.randint(2, 8),
            chance.randint(2, 16),
            *kind,
        )


def make_heads(case):
    seed, num_tokens, num_heads, head_size, dtype, heads_first = case
    o = torch.randn(
        num_tokens, num_heads, head_size, generator=torch.Generator().manual_seed(seed)
    ).to(dtype)
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
    mistakes=(
        Mistake(
            "heads-scrambled",
            "A row does not hold one token's heads. Here the heads come first in memory, "
            "and then the numbers are cut into rows by count: "
            "a row holds one head of several tokens.",
            heads_scrambled,
        ),
        Mistake(
            "heads-interleaved",
            "A row has the right numbers in the wrong order: the first number of each head, "
            "then the second of each. It is all of head 0, then all of head 1.",
            heads_interleaved,
        ),
        Mistake(
            "heads-reversed",
            "The heads of a row are in reverse order. Head 0 comes first.",
            heads_reversed,
        ),
        Mistake(
            "heads-summed",
            "The heads are added up. "
            "They stand side by side, so a row has num_heads * head_size numbers.",
            heads_summed,
        ),
        Mistake(
            "heads-averaged",
            "The heads are averaged. "
            "They stand side by side, so a row has num_heads * head_size numbers.",
            heads_averaged,
        ),
        Mistake(
            "first-head-only",
            "A row holds head 0, and the other heads are lost.",
            first_head_only,
        ),
        Mistake(
            "tokens-merged",
            "A row is one head of one token. It should be one token with all of its heads.",
            tokens_merged,
        ),
        Mistake(
            "head-major",
            "A row is one head with all of the tokens. "
            "It should be one token with all of its heads.",
            head_major,
        ),
        Mistake(
            "taken-for-heads-first",
            "o is taken for (num_heads, num_tokens, head_size). "
            "The tokens are its first dimension. "
            "reshape() gives the numbers other sizes and leaves their order as it is.",
            taken_for_heads_first,
        ),
        Mistake(
            "one-number-of-each-piece",
            "A row holds numbers of several tokens: all numbers are cut into pieces "
            "of num_tokens, and a row takes one number of each piece. "
            "The tokens are the first dimension of o, and they stay there.",
            one_number_of_each_piece,
        ),
        Mistake(
            "one-row",
            "All tokens stand in one row. "
            "Each token keeps a row of its own: only the last two dimensions are merged.",
            one_row,
        ),
        Mistake(
            "heads-below-each-other",
            "The heads are put below each other, one token a row and one head "
            "after the other. They stand side by side: which dimension grows?",
            heads_below_each_other,
        ),
        Mistake(
            "dtype-changed",
            "The numbers come out in another dtype than they went in. "
            "A model in 16 bits stays in 16 bits.",
            always_float32,
            also=(lambda o: o.flatten(1).double(), lambda o: o.flatten(1).half()),
        ),
        Mistake(
            "view-of-any-layout",
            "view() works for one order of the numbers in memory only, and a transposed "
            "tensor has another. There are functions that copy where they have to.",
            view_of_any_layout,
            also=(
                lambda o: o.view(o.shape[0], o.shape[1] * o.shape[2]),
                view_of_a_transposed_copy,
            ),
        ),
        Mistake(
            "heads-assumed-adjacent",
            "This takes it that the heads of a token lie side by side in memory. "
            "In a transposed tensor they do not. "
            "There are functions that copy where they have to.",
            heads_assumed_adjacent(lambda o: o[0].numel()),
            also=(heads_assumed_adjacent(lambda o: o.stride(0)),),
        ),
        Mistake(
            "o-changed",
            "The caller's o is another one afterwards: "
            "look for an operation whose name ends in _. A model goes on with its o.",
            o_changed,
            also=(lambda o: o.resize_(len(o), o.shape[1] * o.shape[2]),),
        ),
        Mistake(
            "not-merged",
            "Heads and head_size are still two dimensions. They become one.",
            not_merged,
        ),
    ),
    hints=(
        (
            "In which order do the numbers of o lie in memory? "
            "Which numbers should stand in row 0 of the result?"
        ),
        (
            "Read token by token and head by head, "
            "the numbers are in the right order already. Only two neighbouring dimensions "
            "have to become one, wherever the numbers lie in memory."
        ),
    ),
)
