"""Exercise 5.7: the first divergence.

Layers on the outside, positions on the inside: return at the first place that differs.

A row has dim numbers. It agrees when all of their absolute differences are at most the
tolerance. Ask it this way round, and a NaN does not agree.
"""

import math
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from lessons_content.exercises.kit import Text, counted, exercise


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
NAN = float("nan")


class Case(NamedTuple):
    """changes: what is added where, as (layer, position, number in the row, how much)."""

    num_layers: int
    num_tokens: int
    dim: int
    tolerance: float
    changes: list
    scale: float = 1


CASES = [
    Case(1, 1, 2, 0.1, []),
    Case(1, 1, 2, 0.1, [(0, 0, 0, 1.0)]),
    Case(1, 1, 2, 0.1, [(0, 0, 0, -2.0)]),
    Case(1, 1, 2, 0.1, [(0, 0, 1, 0.3)]),
    Case(1, 3, 2, 0.1, [(0, 0, 0, 1.0), (0, 2, 1, 1.0)]),
    Case(1, 2, 2, 0.1, [(0, 1, 0, 1.0)]),
    Case(2, 2, 2, 0.1, [(1, 0, 0, 1.0)]),
    Case(2, 3, 2, 0.1, [(0, 2, 1, 1.0), (1, 0, 0, 2.0)]),
    Case(2, 3, 2, 0.1, [(0, 1, 0, 3.0), (0, 2, 0, 1.0), (1, 1, 0, 1.0)]),
    Case(2, 3, 2, 0.1, [(0, 0, 0, 0.01), (1, 2, 0, 1.0)]),
    Case(2, 3, 2, 0.1, [(0, 0, 1, 0.01), (1, 2, 1, 0.02)]),
    Case(2, 3, 4, 0.1, [(0, 1, 3, -1.0)]),
    Case(3, 4, 4, 0.1, [(1, 2, 3, NAN)]),
    Case(3, 4, 4, 0.1, [(0, 3, 1, NAN), (1, 0, 0, 5.0)]),
    Case(3, 4, 8, 0.1, [(1, 1, 5, 0.3), (2, 0, 0, 1.0)]),
    Case(3, 4, 8, 0.1, [(0, 3, 7, float("inf")), (2, 0, 0, 1.0)]),
    Case(4, 9, 16, 1e-3, [(2, 7, 11, -0.05), (2, 8, 0, 4.0), (3, 0, 0, 1.0), (1, 4, 4, 1e-4)]),
    Case(1, 2, 2, 0.25, [(0, 1, 0, 0.25)]),
    Case(1, 2, 2, 0.25, [(0, 1, 1, -0.25)]),
    Case(1, 3, 16, 0.05, [(0, 1, ALL, 0.02)]),
    Case(2, 4, 2, 0.1, [(0, 1, 0, 1.0), (0, 2, 0, NAN), (1, 0, 0, NAN)]),
    Case(2, 4, 2, 0.1, [(0, 1, 0, -1.0), (1, 0, 0, NAN)]),
    Case(2, 3, 2, 0.1, [(1, 1, 0, 0.5)], scale=100_000),
    Case(2, 3, 2, 0.1, [(1, 1, 0, -0.5)], scale=100_000),
    Case(2, 3, 2, 0.1, [(0, 2, 1, 0.01)], scale=0.001),
]
# Where 0 is expected: a NaN that was made 0 looks right there.
ZEROS = Case(2, 3, 2, 0.1, [(1, 1, 0, NAN)], scale=0)
# A case where tensors are told from ints, so that other mistakes keep their names.
KINDS = Case(3, 4, 2, 0.1, [(1, 2, 0, 1.0)])
CASES += [ZEROS, KINDS]


def is_about_kinds(case):
    return case[:4] == KINDS[:4] and len(case.changes) == 1


def hidden(chance):
    """Differences, some within the tolerance or exactly it; large numbers and small ones."""

    def place(*sizes):
        return tuple(map(chance.randrange, sizes))

    amounts = 0.5, -0.5, 2.0, -3.0, float("inf"), NAN, 0.02, -0.02
    for number in range(12):
        sizes = chance.randint(2, 5), chance.randint(3, 9), chance.randint(3, 16)
        changes = {place(*sizes): chance.choice(amounts) for _ in range(number // 2)}
        yield Case(*sizes, 0.1, [(*where, amount) for where, amount in changes.items()])
    for tolerance, amount, scale in ((0.25, 0.25, 1), (0.1, 0.5, 100_000), (0.1, 0.02, 0.001)):
        change = *place(2, 4, 5), chance.choice((amount, -amount))
        yield Case(2, 4, 5, tolerance, [change], scale)
    yield Case(2, 4, 16, 0.1, [(*place(2, 4, 5)[:2], ALL, 0.04)])
    yield KINDS._replace(changes=[(*place(3, 4, 2), 1.0)])


def is_printed(case):
    """Whether the traces are small enough to be read in a message."""
    return math.prod(case[:3]) <= 8 and case.scale == 1


def make_traces(case):
    sizes, generator = case[:3], torch.Generator().manual_seed(case.num_layers)
    # whole numbers, or multiples of 1/64: a difference of 0.25 is then exactly 0.25
    if is_printed(case):
        expected = list(torch.arange(1.0, 1 + math.prod(sizes)).view(sizes))
    else:
        drawn = [torch.randn(sizes[1:], generator=generator) for _ in range(case.num_layers)]
        expected = [(64 * output).round() / 64 for output in drawn]
    if case.scale != 1:
        expected = [case.scale * (1 + output.abs()) for output in expected]
    actual = [output.clone() for output in expected]
    for layer, position, index, amount in case.changes:
        actual[layer][position, index] += amount
    return {"expected": expected, "actual": actual}


def observe(answer, case):
    given = make_traces(case)
    result = answer(*given.values(), case.tolerance)
    for name, before in make_traces(case).items():
        if len(given[name]) != len(before) or not all(map(unchanged, given[name], before)):
            return Text(f"{name} has been changed")
    return kind_of(result) if is_about_kinds(case) else place_in(result)


def unchanged(now, before):
    return torch.equal(now.nan_to_num(7.0), before.nan_to_num(7.0))


def place_in(result):
    """The place, in whatever it comes."""
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        return int(result)
    if isinstance(result, tuple | list | torch.Tensor):
        return tuple(map(plain, result))
    return result


def plain(part):
    if isinstance(part, torch.Tensor):
        return int(part) if part.numel() == 1 else part.tolist()
    return int(part) if isinstance(part, Integral) else part


def kind_of(result):
    if isinstance(result, tuple | list) and all(isinstance(part, Integral) for part in result):
        return tuple(map(int, result))
    return Text(repr(result))


def rounded(output):
    return [[round(number, 4) for number in row] for row in output.tolist()]


def describe(case):
    tolerance = f"tolerance {case.tolerance}"
    if is_printed(case):
        traces = ([*map(rounded, trace)] for trace in make_traces(case).values())
        return "expected = {}, actual = {}, {}".format(*traces, tolerance)
    where = "; ".join(
        f"off by {amount} at layer {layer}, position {position}"
        + ", in each number" * (index == ALL)
        for layer, position, index, amount in case.changes
    )
    known = {1: "", 0: ", all 0", 0.001: ", small numbers"}
    size = known.get(case.scale, f", numbers from {case.scale:,} on")
    layers, tokens = counted(case.num_layers, "layer"), counted(case.num_tokens, "token")
    ending = f"{tolerance}; {where or 'no difference'}"
    return f"{layers} of {tokens} with dim {case.dim}{size}, {ending}"


EXERCISE = exercise(
    globals(),
    answer_name="first_divergence",
    size=lambda case: (math.prod(case[:3]), len(case.changes)),
    chancy=lambda case: case is ZEROS or is_about_kinds(case),
    same=lambda expected, actual: (
        type(expected) is type(actual) and repr(expected) == repr(actual)
    ),
)
