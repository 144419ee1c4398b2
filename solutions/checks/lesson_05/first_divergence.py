"""Exercise 5.7: where two traces part."""

import torch
from torch import Tensor

from lessons_lib.checks import Exercise, Mistake, Text


def first_divergence(expected: list[Tensor], actual: list[Tensor], tolerance: float) -> tuple[int, int] | None:
    """The first layer in which two traces differ, and in it the first position; None when they agree.

    expected, actual: for each layer its output, (num_tokens, dim). Two outputs differ at a position when one of its
    numbers is off by more than the tolerance, or is not a number (NaN). In expected there is no NaN.
    """
    # BEGIN SOLUTION 5.7
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs() <= tolerance).all(dim=-1)  # (num_tokens,); a NaN is never <=
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None
    # END SOLUTION


def places(expected, actual, tolerance):
    """Every (layer, position) that differs, in order."""
    return [(layer, position) for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True))
            for position in range(len(ours)) if not bool(((ours[position] - theirs[position]).abs() <= tolerance).all())]


def positions_before_layers(expected, actual, tolerance):
    return min(places(expected, actual, tolerance), key=lambda place: (place[1], place[0]), default=None)


def exact_comparison(expected, actual, tolerance):
    return next(iter(places(expected, actual, 0.0)), None)


def nan_unnoticed(expected, actual, tolerance):
    return first_divergence(expected, [theirs.where(~theirs.isnan(), ours)
                                       for ours, theirs in zip(expected, actual, strict=True)], tolerance)


def last_layer_first(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    return next((place for place in found if place[0] == found[-1][0]), None)


def largest_not_first(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    sizes = {(layer, position): float((expected[layer][position] - actual[layer][position]).abs().nan_to_num(1e30).max())
             for layer, position in found}
    return max(found, key=sizes.get, default=None)


def last_position(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    return max((place for place in found if place[0] == found[0][0]), default=None)


def returns_only_layer(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return None if found is None else found[0]


def position_first(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return None if found is None else found[::-1]


def sign_forgotten(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((theirs - ours) <= tolerance).all(dim=-1)
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None


def averaged(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs().mean(-1) <= tolerance)
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None


def number_not_position(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs() <= tolerance).flatten()
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None


def zeros_for_none(expected, actual, tolerance):
    return first_divergence(expected, actual, tolerance) or (0, 0)


# (layers, tokens, dim, tolerance, what is added where: (layer, position, number in the row, how much))
CASES = [
    (1, 1, 2, 0.1, []),
    (1, 1, 2, 0.1, [(0, 0, 0, 1.0)]),
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
]


def make_traces(case):
    num_layers, num_tokens, dim, _, changes = case
    generator = torch.Generator().manual_seed(num_layers)
    expected = [torch.randn(num_tokens, dim, generator=generator) for _ in range(num_layers)]
    actual = [output.clone() for output in expected]
    for layer, position, index, amount in changes:
        actual[layer][position, index] += amount
    return expected, actual


def observe(answer, case):
    result = answer(*make_traces(case), case[3])
    if isinstance(result, tuple | list):
        return tuple(int(part) if float(part).is_integer() else part for part in result)
    return int(result) if isinstance(result, torch.Tensor) and result.numel() == 1 else result


def describe(case):
    num_layers, num_tokens, dim, tolerance, changes = case
    where = "; ".join(f"off by {amount} at layer {layer}, position {position}" for layer, position, _, amount in changes)
    return f"{num_layers} layers of {num_tokens} tokens with dim {dim}, tolerance {tolerance}; {where or 'no difference'}"


EXERCISE = Exercise(
    id="5.7",
    title="the first divergence",
    answer_name="first_divergence",
    reference=first_divergence,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    same=lambda expected, actual: type(expected) is type(actual) and repr(expected) == repr(actual),
    mistakes=(
        Mistake("positions-before-layers",
                "You give the earliest position, whatever its layer. What goes wrong in one layer spreads to other "
                "positions in the next, so the first layer says more.",
                positions_before_layers),
        Mistake("exact-comparison",
                "Differences within the tolerance are reported too. Two right ways to compute the same thing differ in the "
                "last digits.",
                exact_comparison),
        Mistake("nan-unnoticed",
                "A NaN is passed over. Every comparison with NaN is False, so “is it larger than the tolerance?” says no.",
                nan_unnoticed),
        Mistake("last-layer-first",
                "You report the last layer that differs. It has the mistake from the layers below it.",
                last_layer_first),
        Mistake("largest-not-first",
                "You report the largest difference. A small one below may have caused it.",
                largest_not_first),
        Mistake("last-position",
                "The layer is right. In it, you report the last position that differs, and not the first.",
                last_position),
        Mistake("returns-only-layer",
                "The layer is right, and the position is missing: return both, (layer, position).",
                returns_only_layer),
        Mistake("position-first",
                "Both numbers are right, in the wrong order: it is (layer, position).",
                position_first),
        Mistake("sign-forgotten",
                "A number that is too small goes unnoticed. It is the absolute difference that counts.",
                sign_forgotten),
        Mistake("averaged",
                "One wrong number among many right ones goes unnoticed, because you average over the row. A position "
                "differs when any of its numbers does.",
                averaged),
        Mistake("number-not-position",
                "The second number is too large: it counts the numbers of the output, and each position has dim of them.",
                number_not_position),
        Mistake("zeros-for-none",
                "When the traces agree, the result is None. (0, 0) would be a place.",
                zeros_for_none),
    ),
    hints=(
        "Layers on the outside, positions on the inside: return at the first place that differs.",
        "A row has dim numbers. It agrees when all of their absolute differences are at most the tolerance. Ask it this way "
        "round, and a NaN does not agree.",
    ),
)
