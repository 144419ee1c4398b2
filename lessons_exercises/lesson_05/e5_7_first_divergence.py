"""Exercise 5.7: where two traces part."""

import math
import random
from numbers import Integral

import torch
from torch import Tensor

from lessons_exercises.mistakes import Bank
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Text


def first_divergence(
    expected: list[Tensor], actual: list[Tensor], tolerance: float
) -> tuple[int, int] | None:
    """The first layer in which two traces differ, and in it the first position.

    None when they agree.

    expected, actual: for each layer its output, (num_tokens, dim); they are not changed. Two
        outputs differ at a position when one of its numbers is off by more than the tolerance,
        whatever its size, or is not a number (NaN). A number that is off by exactly the
        tolerance agrees. In expected there is no NaN.
    Returns (layer, position), two ints, each counted from 0.
    """
    # BEGIN SOLUTION 5.7
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        # (num_tokens,); a NaN is never <=
        differs = ~((ours - theirs).abs() <= tolerance).all(dim=-1)
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None
    # END SOLUTION


ALL = slice(None)  # instead of a number in a row: each of them

# (layers, tokens, dim, tolerance, what is added where: (layer, position, number in the row,
# how much), scale)
CASES = [
    (*case, 1)
    for case in (
        (1, 1, 2, 0.1, []),
        (1, 1, 2, 0.1, [(0, 0, 0, 1.0)]),
        (1, 1, 2, 0.1, [(0, 0, 0, -2.0)]),
        (1, 1, 2, 0.1, [(0, 0, 1, 0.3)]),
        (1, 3, 2, 0.1, [(0, 0, 0, 1.0), (0, 2, 1, 1.0)]),
        (1, 2, 2, 0.1, [(0, 1, 0, 1.0)]),
        (2, 2, 2, 0.1, [(1, 0, 0, 1.0)]),
        (2, 3, 2, 0.1, [(0, 2, 1, 1.0), (1, 0, 0, 2.0)]),
        (2, 3, 2, 0.1, [(0, 1, 0, 3.0), (0, 2, 0, 1.0), (1, 1, 0, 1.0)]),
        (2, 3, 2, 0.1, [(0, 0, 0, 0.01), (1, 2, 0, 1.0)]),
        (2, 3, 2, 0.1, [(0, 0, 1, 0.01), (1, 2, 1, 0.02)]),
        (2, 3, 4, 0.1, [(0, 1, 3, -1.0)]),
        (3, 4, 4, 0.1, [(1, 2, 3, float("nan"))]),
        (3, 4, 4, 0.1, [(0, 3, 1, float("nan")), (1, 0, 0, 5.0)]),
        (3, 4, 8, 0.1, [(1, 1, 5, 0.3), (2, 0, 0, 1.0)]),
        (3, 4, 8, 0.1, [(0, 3, 7, float("inf")), (2, 0, 0, 1.0)]),
        (4, 9, 16, 1e-3, [(2, 7, 11, -0.05), (2, 8, 0, 4.0), (3, 0, 0, 1.0), (1, 4, 4, 1e-4)]),
        (1, 2, 2, 0.25, [(0, 1, 0, 0.25)]),
        (1, 2, 2, 0.25, [(0, 1, 1, -0.25)]),
        (1, 3, 16, 0.05, [(0, 1, ALL, 0.02)]),
        (2, 4, 2, 0.1, [(0, 1, 0, 1.0), (0, 2, 0, float("nan")), (1, 0, 0, float("nan"))]),
        (2, 4, 2, 0.1, [(0, 1, 0, -1.0), (1, 0, 0, float("nan"))]),
    )
] + [
    (2, 3, 2, 0.1, [(1, 1, 0, 0.5)], 100_000),
    (2, 3, 2, 0.1, [(1, 1, 0, -0.5)], 100_000),
    (2, 3, 2, 0.1, [(0, 2, 1, 0.01)], 0.001),
]
# Where 0 is expected: a NaN that was made 0 looks right there.
ZEROS = (2, 3, 2, 0.1, [(1, 1, 0, float("nan"))], 0)
# A case where a list or a tensor is told from a tuple of ints, so that other mistakes keep
# their names.
KINDS = (3, 4, 2, 0.1, [(1, 2, 0, 1.0)], 1)


def is_about_kinds(case):
    return case[:4] == KINDS[:4] and len(case[4]) == 1


def hidden(seed):
    """One difference or several, and some that are within the tolerance.

    Exactly it; large numbers and small ones.
    """
    chance = random.Random(seed)

    def place(num_layers, num_tokens, dim):
        return (
            chance.randrange(num_layers),
            chance.randrange(num_tokens),
            chance.randrange(dim),
        )

    amounts = 0.5, -0.5, 2.0, -3.0, float("inf"), float("nan"), 0.02, -0.02
    for number in range(12):
        sizes = chance.randint(2, 5), chance.randint(3, 9), chance.randint(3, 16)
        changes = {place(*sizes): chance.choice(amounts) for _ in range(number // 2)}
        yield *sizes, 0.1, [(*where, amount) for where, amount in changes.items()], 1
    yield 2, 4, 5, 0.25, [(*place(2, 4, 5), chance.choice((0.25, -0.25)))], 1
    yield 2, 4, 5, 0.1, [(*place(2, 4, 5), chance.choice((0.5, -0.5)))], 100_000
    yield 2, 4, 5, 0.1, [(*place(2, 4, 5), chance.choice((0.02, -0.02)))], 0.001
    yield 2, 4, 16, 0.1, [(*place(2, 4, 5)[:2], ALL, 0.04)], 1
    yield *KINDS[:4], [(*place(3, 4, 2), 1.0)], 1


def is_printed(case):
    """Whether the traces are small enough to be read in a message."""
    return math.prod(case[:3]) <= 8 and case[5] == 1


def make_traces(case):
    num_layers, num_tokens, dim, _, changes, scale = case
    generator = torch.Generator().manual_seed(num_layers)
    # whole numbers, or multiples of 1/64: a difference of 0.25 is then exactly 0.25
    if is_printed(case):
        sizes = num_layers, num_tokens, dim
        numbers = torch.arange(1.0, 1 + math.prod(sizes)).view(sizes)
        expected = list(numbers)
    else:
        expected = [
            (64 * torch.randn(num_tokens, dim, generator=generator)).round() / 64
            for _ in range(num_layers)
        ]
    if scale != 1:
        expected = [scale * (1 + output.abs()) for output in expected]
    actual = [output.clone() for output in expected]
    for layer, position, index, amount in changes:
        actual[layer][position, index] += amount
    return expected, actual


def observe(answer, case):
    expected, actual = make_traces(case)
    given = [list(expected), list(actual)]
    result = answer(*given, case[3])
    for name, now, before in zip(
        ("expected", "actual"), given, make_traces(case), strict=True
    ):
        if len(now) != len(before) or not all(map(unchanged, now, before)):
            return Text(f"{name} has been changed")
    return kind_of(result) if is_about_kinds(case) else place_in(result)


def place_in(result):
    """The place, in whatever it comes."""
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        return int(result)
    if not isinstance(result, tuple | list | torch.Tensor):
        return result
    return tuple(
        (
            int(part)
            if isinstance(part, Integral)
            or isinstance(part, torch.Tensor)
            and part.numel() == 1
            else number(part)
        )
        for part in result
    )


def kind_of(result):
    if isinstance(result, tuple) and all(isinstance(part, Integral) for part in result):
        return tuple(map(int, result))
    if isinstance(result, tuple):
        return Text(f"({', '.join(repr(part) for part in result)})")
    return Text(f"a list, {result}" if isinstance(result, list) else repr(result))


def unchanged(now, before):
    return torch.equal(now.nan_to_num(7.0), before.nan_to_num(7.0))


def number(part):
    return part.tolist() if isinstance(part, torch.Tensor) else part


def describe(case):
    num_layers, num_tokens, dim, tolerance, changes, scale = case
    where = "; ".join(
        f"off by {amount} at layer {layer}, position {position}"
        + ", in each number" * (index == ALL)
        for layer, position, index, amount in changes
    )
    if is_printed(case):
        ours, theirs = (
            [
                [[round(number, 4) for number in row] for row in output.tolist()]
                for output in trace
            ]
            for trace in make_traces(case)
        )
        return f"expected = {ours}, actual = {theirs}, tolerance {tolerance}"
    if scale > 1:
        size = f", numbers from {scale:,} on"
    else:
        size = {1: "", 0: ", all 0"}.get(scale, ", small numbers")
    return (
        f"{counted(num_layers, 'layer')} of {counted(num_tokens, 'token')} "
        f"with dim {dim}{size}, tolerance {tolerance}; {where or 'no difference'}"
    )


EXERCISE = Exercise(
    id="5.7",
    title="the first divergence",
    answer_name="first_divergence",
    reference=first_divergence,
    cases=lambda: [*CASES, ZEROS, KINDS],
    size=lambda case: (math.prod(case[:3]), len(case[4])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=lambda case: case is ZEROS or is_about_kinds(case),
    same=lambda expected, actual: (
        type(expected) is type(actual) and repr(expected) == repr(actual)
    ),
    mistakes=Bank("5.7", "first_divergence", __file__, globals()),
    hints=(
        (
            "Layers on the outside, positions on the inside: "
            "return at the first place that differs."
        ),
        (
            "A row has dim numbers. It agrees when all of their absolute differences "
            "are at most the tolerance. Ask it this way round, and a NaN does not agree."
        ),
    ),
)
