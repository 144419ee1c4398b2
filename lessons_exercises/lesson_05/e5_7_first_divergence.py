"""Exercise 5.7: where two traces part."""

import math
import random
from numbers import Integral

import torch
from torch import Tensor

from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text


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


def places(expected, actual, tolerance):
    """Every (layer, position) that differs, in order."""
    return [
        (layer, position)
        for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True))
        for position in range(len(ours))
        if not bool(((ours[position] - theirs[position]).abs() <= tolerance).all())
    ]


def positions_before_layers(expected, actual, tolerance):
    return min(
        places(expected, actual, tolerance),
        key=lambda place: (place[1], place[0]),
        default=None,
    )


def exact_comparison(expected, actual, tolerance):
    return next(iter(places(expected, actual, 0.0)), None)


def nan_unnoticed(expected, actual, tolerance):
    return first_divergence(
        expected,
        [
            theirs.where(~theirs.isnan(), ours)
            for ours, theirs in zip(expected, actual, strict=True)
        ],
        tolerance,
    )


def last_layer_first(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    return next((place for place in found if place[0] == found[-1][0]), None)


def largest_not_first(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    sizes = {
        (layer, position): float(
            (expected[layer][position] - actual[layer][position]).abs().nan_to_num(1e30).max()
        )
        for layer, position in found
    }
    return max(found, key=sizes.get, default=None)


def largest_by(size):
    """The largest place by another measure, in the first layer that differs.

    size(difference) of a layer gives (num_tokens,).
    """

    def wrong(expected, actual, tolerance):
        for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
            if not ((ours - theirs).abs() <= tolerance).all():
                return layer, int(size((ours - theirs).abs()).argmax())
        return None

    return wrong


def largest_of_all(notices_nan):
    def wrong(expected, actual, tolerance):
        sizes = torch.stack(
            [
                (ours - theirs).abs().amax(-1)
                for ours, theirs in zip(expected, actual, strict=True)
            ]
        )
        differs = ~(sizes <= tolerance) if notices_nan else sizes > tolerance
        return divmod(int(sizes.argmax()), sizes.shape[1]) if differs.any() else None

    return wrong


def columns_for_positions(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs() <= tolerance).all(0)
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None


def only_the_first_layer(expected, actual, tolerance):
    return first_divergence(expected[:1], actual[:1], tolerance)


def number_too(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs() <= tolerance)
        if differs.any():
            return layer, *differs.nonzero()[0].tolist()
    return None


def agreement_raises(places_of):
    """A wrong answer that takes the first of the places, be there any or not."""

    def wrong(expected, actual, tolerance):
        found = places_of(expected, actual, tolerance)
        if not found:
            raise IndexError("index 0 is out of bounds for dimension 0 with size 0")
        return found[0]

    return wrong


def first_unequal_layer(expected, actual, tolerance):
    """The places in the first layer that is not equal to the last digit.

    None where that one agrees.
    """
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if not torch.equal(ours, theirs):
            found = [
                place for place in places(expected, actual, tolerance) if place[0] == layer
            ]
            if not found:
                raise IndexError("index 0 is out of bounds for dimension 0 with size 0")
            return found[0]
    return None


def nan_at_the_front(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if theirs.isnan().any():
            return layer, 0
        if found := first_divergence([ours], [theirs], tolerance):
            return layer, found[1]
    return None


def nan_replaced(expected, actual, tolerance):
    return first_divergence(expected, [theirs.nan_to_num() for theirs in actual], tolerance)


def last_position(expected, actual, tolerance):
    found = places(expected, actual, tolerance)
    return max((place for place in found if place[0] == found[0][0]), default=None)


def returns_only_layer(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return None if found is None else found[0]


def position_first(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return None if found is None else found[::-1]


def where_rows(differ):
    """A wrong answer that finds rows with another rule.

    differ(ours, theirs, tolerance): bool (num_tokens,).
    """

    def wrong(expected, actual, tolerance):
        for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
            differs = differ(ours, theirs, tolerance)
            if differs.any():
                return layer, int(differs.nonzero()[0])
        return None

    return wrong


def nan_first_of_all(expected, actual, tolerance):
    for layer, theirs in enumerate(actual):
        if theirs.isnan().any():
            return layer, int(theirs.isnan().any(-1).nonzero()[0])
    return first_divergence(expected, actual, tolerance)


def nan_first_in_each_layer(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if theirs.isnan().any():
            return layer, int(theirs.isnan().any(-1).nonzero()[0])
        if found := first_divergence([ours], [theirs], tolerance):
            return layer, found[1]
    return None


def counted_from(first_layer, first_position):
    def wrong(expected, actual, tolerance):
        found = first_divergence(expected, actual, tolerance)
        return found and (found[0] + first_layer, found[1] + first_position)

    return wrong


def list_returned(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return found and list(found)


def tensors_returned(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return found and (found[0], torch.tensor(found[1]))


def two_tensors_returned(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return found and tuple(map(torch.tensor, found))


def one_row_of_tensors_returned(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return found and (found[0], torch.tensor(found[1:]))


def one_tensor_returned(expected, actual, tolerance):
    found = first_divergence(expected, actual, tolerance)
    return found and torch.tensor(found)


def changing(subtract):
    """A wrong answer that leaves its differences in the arguments."""

    def wrong(expected, actual, tolerance):
        for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
            differs = ~(subtract(ours, theirs).abs_() <= tolerance).all(-1)
            if differs.any():
                return layer, int(differs.nonzero()[0])
        return None

    return wrong


def with_nan_emptied(expected, actual, tolerance):
    for theirs in actual:
        theirs.nan_to_num_(nan=1e30)
    return first_divergence(expected, actual, tolerance)


def number_not_position(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        differs = ~((ours - theirs).abs() <= tolerance).flatten()
        if differs.any():
            return layer, int(differs.nonzero()[0])
    return None


def zeros_for_none(expected, actual, tolerance):
    return first_divergence(expected, actual, tolerance) or (0, 0)


ALL = slice(None)  # in place of a number in a row: each of them

# (layers, tokens, dim, tolerance, what is added where: (layer, position, number in the row,
# how much), scale)
CASES = [
    (*case, 1)
    for case in (
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


# (is ours the first argument, the options of isclose for a tolerance)
RELATIVE = [
    (ours_first, options)
    for ours_first in (False, True)
    for options in (
        lambda tolerance: {"rtol": tolerance},
        lambda tolerance: {"atol": tolerance},
        lambda tolerance: {"rtol": tolerance, "atol": tolerance},
    )
]


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


def make_traces(case):
    num_layers, num_tokens, dim, _, changes, scale = case
    generator = torch.Generator().manual_seed(num_layers)
    # Multiples of 1/64 times the scale: a difference of 0.25 is then exactly 0.25.
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
    if scale > 1:
        size = f", numbers from {scale:,} on"
    else:
        size = {1: "", 0: ", all 0"}.get(scale, ", small numbers")
    return (
        f"{counted(num_layers, 'layer')} of {counted(num_tokens, 'token')} "
        f"with dim {dim}{size}, tolerance {tolerance}; {where or 'no difference'}"
    )


def several(slug, message, wrong, *also):
    """A mistake in several forms."""
    return Mistake(slug, message, wrong, also=also)


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
    mistakes=(
        Mistake(
            "positions-before-layers",
            "You give the earliest position, whatever its layer. "
            "What goes wrong in one layer spreads to other positions in the next, "
            "so the first layer says more.",
            positions_before_layers,
        ),
        Mistake(
            "exact-comparison",
            "Differences within the tolerance are reported too. "
            "Two right ways to compute the same thing differ in the last digits.",
            exact_comparison,
        ),
        Mistake(
            "nan-unnoticed",
            "A NaN is passed over. Every comparison with NaN is False, "
            "so “is it larger than the tolerance?” says no.",
            nan_unnoticed,
        ),
        Mistake(
            "nan-replaced",
            "Each NaN is made a number before the comparison, "
            "and where that number happens to be right nobody learns of it. "
            "A NaN differs, whatever is expected in its place.",
            nan_replaced,
        ),
        Mistake(
            "last-layer-first",
            "You report the last layer that differs. "
            "It has the mistake from the layers below it.",
            last_layer_first,
        ),
        Mistake(
            "largest-not-first",
            "You report the largest difference. A small one below may have caused it.",
            largest_not_first,
            also=(
                largest_by(lambda difference: difference.amax(-1)),
                largest_by(lambda difference: difference.sum(-1)),
                largest_by(lambda difference: difference.nan_to_num(0.0).amax(-1)),
                largest_of_all(notices_nan=True),
                largest_of_all(notices_nan=False),
            ),
        ),
        Mistake(
            "last-position",
            "The layer is right. "
            "In it, you report the last position that differs, and not the first.",
            last_position,
        ),
        Mistake(
            "returns-only-layer",
            "The layer is right, and the position is missing: return both, (layer, position).",
            returns_only_layer,
        ),
        Mistake(
            "position-first",
            "Both numbers are right, in the wrong order: it is (layer, position).",
            position_first,
        ),
        several(
            "sign-forgotten",
            "Of the numbers that are too small and those that are too large, "
            "one kind goes unnoticed. It is the absolute difference that counts.",
            where_rows(
                lambda ours, theirs, tolerance: ~((theirs - ours) <= tolerance).all(-1)
            ),
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs) <= tolerance).all(-1)
            ),
            where_rows(lambda ours, theirs, tolerance: ((theirs - ours) > tolerance).any(-1)),
            where_rows(lambda ours, theirs, tolerance: ((ours - theirs) > tolerance).any(-1)),
            where_rows(
                lambda ours, theirs, tolerance: ~((theirs - ours).amax(-1) <= tolerance)
            ),
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).amax(-1) <= tolerance)
            ),
            where_rows(lambda ours, theirs, tolerance: (theirs - ours).amax(-1) > tolerance),
            where_rows(lambda ours, theirs, tolerance: (ours - theirs).amax(-1) > tolerance),
        ),
        several(
            "averaged",
            "One wrong number among many right ones goes unnoticed, because you average over "
            "the row. A position differs when any of its numbers does.",
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).abs().mean(-1) <= tolerance)
            ),
            where_rows(
                lambda ours, theirs, tolerance: (ours - theirs).abs().mean(-1) > tolerance
            ),
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).mean(-1).abs() <= tolerance)
            ),
        ),
        several(
            "row-sum-or-norm",
            "Many small differences count as one large one, because you add them up over "
            "the row. A position differs when one of its numbers does.",
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).abs().sum(-1) <= tolerance)
            ),
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).norm(dim=-1) <= tolerance)
            ),
            where_rows(
                lambda ours, theirs, tolerance: (ours - theirs).abs().sum(-1) > tolerance
            ),
            where_rows(
                lambda ours, theirs, tolerance: (ours - theirs).norm(dim=-1) > tolerance
            ),
        ),
        several(
            "all-numbers-must-differ",
            "A position is reported only when all of its numbers are off. "
            "One of them is enough.",
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).abs() <= tolerance).any(-1)
            ),
            where_rows(
                lambda ours, theirs, tolerance: ((ours - theirs).abs() > tolerance).all(-1)
            ),
            where_rows(
                lambda ours, theirs, tolerance: (ours - theirs).abs().amin(-1) > tolerance
            ),
        ),
        several(
            "tolerance-itself",
            "A difference of exactly the tolerance is reported. "
            "It still agrees: only more than the tolerance differs.",
            where_rows(
                lambda ours, theirs, tolerance: ~((ours - theirs).abs() < tolerance).all(-1)
            ),
            where_rows(
                lambda ours, theirs, tolerance: ((ours - theirs).abs() >= tolerance).any(-1)
            ),
        ),
        several(
            "relative-tolerance",
            "The tolerance grows with the size of the numbers. "
            "Here it is a fixed distance for large and small numbers alike. "
            "(isclose and allclose add a relative part of their own, unless rtol is 0.)",
            where_rows(
                lambda ours, theirs, tolerance: (
                    ~torch.isclose(theirs, ours, rtol=tolerance, atol=0.0).all(-1)
                )
            ),
            *(
                where_rows(
                    lambda ours, theirs, tolerance, options=options: (
                        ~torch.isclose(
                            *((ours, theirs) if options[0] else (theirs, ours)),
                            **options[1](tolerance),
                        ).all(-1)
                    )
                )
                for options in RELATIVE
            ),
            where_rows(
                lambda ours, theirs, tolerance: (
                    ~((ours - theirs).abs() / ours.abs() <= tolerance).all(-1)
                )
            ),
            where_rows(
                lambda ours, theirs, tolerance: (
                    (ours - theirs).abs() / ours.abs() > tolerance
                ).any(-1)
            ),
        ),
        several(
            "nan-first",
            "NaN is looked for before anything else. It is one way to differ among others: "
            "the first place that differs may come before it.",
            nan_first_of_all,
            nan_first_in_each_layer,
        ),
        several(
            "counted-from-one",
            "Layers and positions are counted from 0, and here one of them, or both, from 1.",
            counted_from(1, 0),
            counted_from(1, 1),
            counted_from(0, 1),
        ),
        Mistake(
            "list-for-tuple",
            "The place is right, and it comes as a list. "
            "What is asked for is a tuple: (0, 2) and [0, 2] are not equal.",
            list_returned,
        ),
        several(
            "tensors-for-ints",
            "The place is right, and it is not made of ints: there is a tensor in it. "
            "It is shown and compared in another way. int() or .item() makes a number of it.",
            tensors_returned,
            two_tensors_returned,
            one_row_of_tensors_returned,
            one_tensor_returned,
        ),
        several(
            "inputs-changed",
            "One of the traces has another content than before: look for an operation whose "
            "name ends in _, or += and its like. You will want to compare the traces again.",
            changing(lambda ours, theirs: ours.sub_(theirs)),
            changing(lambda ours, theirs: theirs.sub_(ours)),
            with_nan_emptied,
        ),
        Mistake(
            "number-not-position",
            "The second number is too large: it counts the numbers of the output, "
            "and each position has dim of them.",
            number_not_position,
        ),
        Mistake(
            "zeros-for-none",
            "When the traces agree, the result is None. (0, 0) would be a place.",
            zeros_for_none,
        ),
        several(
            "minus-one-for-none",
            "When the traces agree, the result is None. "
            "Anything else might be taken for a place.",
            lambda *case: first_divergence(*case) or (-1, -1),
            lambda *case: first_divergence(*case) or -1,
            lambda *case: first_divergence(*case) or (),
        ),
        several(
            "agreement-raises",
            "Where nothing differs, the first place is asked for all the same, "
            "and an error is raised. Look whether there is one.",
            agreement_raises(places),
            first_unequal_layer,
        ),
        Mistake(
            "columns-for-positions",
            "The second number counts within a row: "
            "it says which of the dim numbers differs. A position is a row.",
            columns_for_positions,
        ),
        Mistake(
            "only-the-first-layer",
            "After the first layer the search is over. When that one agrees, "
            "the next one may still differ: where does your loop return?",
            only_the_first_layer,
        ),
        Mistake(
            "number-too",
            "The place has a number too many: "
            "which of the dim numbers differs is not asked for.",
            number_too,
        ),
        Mistake(
            "nan-at-the-front",
            "Where a layer has a NaN, you say position 0. "
            "A NaN has a position like any other number that differs.",
            nan_at_the_front,
        ),
    ),
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
