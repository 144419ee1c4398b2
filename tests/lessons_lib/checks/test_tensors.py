"""Results that hold tensors: what counts as equal, and what a message shows of two that
differ.
"""

import pytest
import torch

from lessons_content.exercises.tensors import Values, same, show, values
from lessons_lib.checks import Text

ONES = Values(torch.ones(2, 3))


@pytest.mark.parametrize(
    "actual, equal",
    [
        (torch.ones(2, 3), True),
        (torch.ones(2, 3, dtype=torch.float64), True),
        (torch.ones(2, 3) + 5e-5, True),
        (torch.ones(2, 3) + 5e-3, False),
        (torch.ones(3, 2), False),
        (torch.ones(2, 3, dtype=torch.int64), False),
        (torch.full((2, 3), float("nan")), False),
        (torch.full((2, 3), float("inf")), False),
    ],
)
def test_floats_are_the_same_within_a_tolerance(actual, equal):
    assert same(ONES, Values(actual)) is equal


def test_integers_are_the_same_in_value_and_dtype():
    slots = Values(torch.tensor([1, 2]))
    assert same(slots, Values(torch.tensor([1, 2])))
    assert not same(slots, Values(torch.tensor([1, 2], dtype=torch.int32))) and not same(
        slots, Values(torch.tensor([1, 3]))
    )


def test_what_is_not_a_tensor_becomes_words():
    assert values(None) == "None instead of a tensor"
    assert (
        values((1, 2), "o", "m", "l")
        == "a tuple of 2: int, int instead of a tuple of 3 tensors (o, m, l)"
    )
    assert (
        not same(ONES, values(None))
        and not same((ONES, ONES), values(None))
        and not same((ONES,), (ONES, ONES))
    )
    assert same(Text("None"), Text("None"))


def test_a_message_begins_where_the_two_differ():
    expected, actual = torch.zeros(2, 9), torch.zeros(2, 9)
    actual[1, 4] = 7.0
    assert show(Values(expected, "o"), Values(actual, "o")) == (
        "o (2, 9) float at [1, 4]: 0, 0, 0, 0, 0",
        "o (2, 9) float at [1, 4]: 7, 0, 0, 0, 0",
    )
    pair = (Values(expected, "o"), Values(expected, "m"))
    assert (
        show(pair, (pair[0], Values(actual, "m")))[1]
        == "m (2, 9) float at [1, 4]: 7, 0, 0, 0, 0"
    )


def test_numbers_that_look_alike_have_more_digits():
    ours, theirs = torch.full((9,), 1.0432), torch.full((9,), 1.0434)
    assert show(Values(ours), Values(theirs)) == (
        "(9,) float at [0]: " + ", ".join(["1.0432"] * 6),
        "(9,) float at [0]: " + ", ".join(["1.0434"] * 6),
    )
    assert show(Values(ours[:1]), Values(theirs[:1])) == (
        "(1,) float [1.0432]",
        "(1,) float [1.0434]",
    )


def test_other_shapes_and_dtypes_are_shown_as_such():
    assert show(ONES, Values(torch.ones(3))) == (
        "(2, 3) float [1, 1, 1, 1, 1, 1]",
        "(3,) float [1, 1, 1]",
    )
    assert show(Values(torch.tensor([1])), Values(torch.tensor([1], dtype=torch.int32))) == (
        "(1,) int64 [1]",
        "(1,) int32 [1]",
    )
    assert show(ONES, Text("None instead of a tensor"))[1] == "None instead of a tensor"
