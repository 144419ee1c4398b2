"""Exercise 5.8: the heads of a token, side by side."""

import torch
from torch import Tensor

from lessons_lib.checks import Exercise, Mistake
from solutions.checks import tensors


def merge_heads(o: Tensor) -> Tensor:
    """Each token's heads side by side, head 0 first.

    o: (num_tokens, num_heads, head_size). Returns (num_tokens, num_heads * head_size).
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


# (seed, tokens, heads, head size)
CASES = [(1, 1, 1, 2), (2, 1, 2, 2), (3, 2, 1, 3), (4, 2, 2, 2), (5, 2, 3, 2), (6, 3, 2, 4), (7, 5, 7, 16), (8, 17, 6, 8)]


def observe(answer, case):
    seed, *shape = case
    return tensors.values(answer(torch.randn(*shape, generator=torch.Generator().manual_seed(seed))))


EXERCISE = Exercise(
    id="5.8",
    title="the heads of a token, side by side",
    answer_name="merge_heads",
    reference=merge_heads,
    cases=lambda: CASES,
    observe=observe,
    describe=lambda case: "o with {1} tokens, {2} heads, head_size {3}".format(*case),
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake("heads-scrambled",
                "A row does not hold one token's heads. Here the heads come first in memory, and then the numbers are cut "
                "into rows by count: a row holds one head of several tokens.",
                heads_scrambled),
        Mistake("heads-interleaved",
                "A row has the right numbers in the wrong order: the first number of each head, then the second of each. It "
                "is all of head 0, then all of head 1.",
                heads_interleaved),
        Mistake("heads-reversed", "The heads of a row are in reverse order. Head 0 comes first.", heads_reversed),
        Mistake("heads-summed",
                "The heads are added up. They stand side by side, so a row has num_heads * head_size numbers.",
                heads_summed),
        Mistake("heads-averaged",
                "The heads are averaged. They stand side by side, so a row has num_heads * head_size numbers.",
                heads_averaged),
        Mistake("first-head-only", "A row holds head 0, and the other heads are lost.", first_head_only),
        Mistake("tokens-merged", "A row is one head of one token. It should be one token with all of its heads.",
                tokens_merged),
        Mistake("head-major", "A row is one head with all of the tokens. It should be one token with all of its heads.",
                head_major),
        Mistake("not-merged", "Heads and head_size are still two dimensions. They become one.", not_merged),
    ),
    hints=(
        "In which order do the numbers of o lie in memory? Which numbers should stand in row 0 of the result?",
        "The numbers are in the right order already. Only two neighbouring dimensions have to become one.",
    ),
)
