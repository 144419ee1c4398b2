"""An answer whose result is right, and that does something beside it, is named."""

import functools
import inspect
import re

import pytest
import torch

from answers import every_exercise
from lessons_lib import checks
from lessons_lib.checks import side_effects

FUNCTIONS = [
    exercise
    for exercise in every_exercise()
    if exercise.language == "python" and inspect.isfunction(exercise.reference)
]
# These have to change: another value in them is a wrong result.
RESULTS = {("1.6", "pool"), ("1.6", "blocks"), ("2.3", "k_cache"), ("2.3", "v_cache")}


def changing(function, name: str):
    """The function, which changes an argument once its result is there."""

    @functools.wraps(function)
    def answer(*arguments, **named):
        result = function(*arguments, **named)
        value = inspect.signature(function).bind(*arguments, **named).arguments.get(name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, torch.Tensor):
                each.copy_(each.logical_not() if each.dtype == torch.bool else each + 1)
            elif isinstance(each, list):
                each.append(each[-1] if each else 0)
        return result

    return answer


@pytest.mark.sampled(6)
@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda exercise: exercise.id)
def test_a_changed_argument_passes_or_has_a_name(exercise):
    for name in inspect.signature(exercise.reference).parameters:
        if (exercise.id, name) not in RESULTS:
            result = checks.run(exercise.id, changing(exercise.reference, name))
            assert result.passed or result.mistake != "wrong", (name, result.message)
            if result.mistake == side_effects.CHANGED:
                assert re.search(f"`?{name}`? (changes|has been changed)", result.message)


def passes(cases, observe):
    return lambda theirs, ours: all(
        observe(ours, case) == observe(theirs, case) for case in cases
    )


def observe(function, case):
    values, weights = [*range(case)], torch.ones(case)
    result = function(values, weights)
    return result, values, weights.tolist()


def doubled(values, weights):
    return [2 * value for value in values]


def test_the_arguments_that_change_are_named():
    def answer(values, weights):
        result = doubled(values, weights)
        values.clear()
        weights.zero_()
        return result

    slug, message = side_effects.slip(doubled, answer, passes(range(4), observe))
    assert slug == "arguments-changed" and "`values` and `weights`" in message


def test_what_our_answer_changes_too_is_not_undone():
    def ours(values, weights):
        values.append(1)

    def answer(values, weights):
        values.append(1)
        weights.add_(1)

    slug, message = side_effects.slip(ours, answer, passes(range(4), observe))
    assert (
        slug == "arguments-changed"
        and "`weights` changes" in message
        and "values" not in message
    )


def test_a_wrong_result_beside_a_changed_argument_has_no_name():
    def answer(values, weights):
        values.clear()
        return values

    assert side_effects.slip(doubled, answer, passes(range(4), observe)) is None


def test_a_tensor_in_a_list_is_a_part_of_the_argument():
    def observe(function, case):
        rows = [torch.ones(case), torch.zeros(case)]
        return function(rows), [row.tolist() for row in rows]

    def answer(rows):
        rows[1][:] = 2
        return len(rows)

    slug, message = side_effects.slip(lambda rows: 2, answer, passes(range(1, 4), observe))
    assert slug == "arguments-changed" and "`rows` changes" in message


NAN = float("nan")
BEFORE_AND_AFTER = [
    ([], [], False),
    ([1, 2], [1, 2], False),
    ([NAN, 1], [NAN, 1], False),
    ([NAN, 1], [NAN, 2], True),
    ([NAN, 1], [1, 1], True),
    ([1, 1], [1, NAN], True),
    ([1, 2], [2, 1], True),
]


@pytest.mark.parametrize(
    "make, before, after, changed",
    [(make, *case) for make in (list, torch.tensor) for case in BEFORE_AND_AFTER]
    + [(list, [1, 2], [1], True), (list, [1], [1, 2], True)],
)
def test_an_argument_has_changed_if_a_number_has_and_nan_that_stays_is_none(
    make, before, after, changed
):
    """And the next call finds it as it was."""
    left = []

    def answer(values):
        values[:] = make(after)

    def tried(theirs, ours):
        values = make(before)
        ours(values), theirs(values)
        left.append([*map(float, values)])
        return True

    slug, _ = side_effects.slip(lambda values: None, answer, tried)
    assert (slug == side_effects.CHANGED) is changed
    assert str(left[0]) == str([*map(float, before)])


def test_a_call_that_fits_no_parameters_is_left_to_fail():
    def given_too_much(function, case):
        try:
            return function([case], torch.ones(case), "more")
        except TypeError:
            return "TypeError"

    def answer(values, weights, more):
        return more

    assert side_effects.slip(doubled, answer, passes(range(2), given_too_much)) is None


def test_each_of_several_arguments_of_one_name_is_restored():
    def ours(*values, scale):
        return scale * sum(map(sum, values))

    def answer(*values, scale):
        total = ours(*values, scale=scale)
        values[-1].clear()
        return total

    def observe_two(function, case):
        values = [1, case], [2, case]
        return function(*values, scale=case), values

    slug, message = side_effects.slip(ours, answer, passes(range(4), observe_two))
    assert slug == "arguments-changed" and "`values` changes" in message


def test_a_result_whose_parts_something_else_uses_is_named():
    inner = torch.zeros(2), [torch.zeros(2)]

    def ours(size):
        return torch.full((2,), size), [torch.full((2,), size)]

    def answer(size):
        inner[0].fill_(size), inner[1][0].fill_(size)
        return inner

    def twice(function, size):
        first, _ = function(size), function(size + 1)
        return first[0].tolist(), first[1][0].tolist(), type(first), type(first[1])

    slug, message = side_effects.slip(ours, answer, passes((1.0, 2.0), twice))
    assert slug == "result-shared" and "is not a new object" in message


def test_what_is_no_list_and_no_tensor_comes_as_it_is():
    inner = {"size": 0}

    def ours(size):
        return {"size": size}

    def answer(size):
        inner["size"] = size
        return inner

    def twice(function, size):
        first, _ = function(size), function(size + 1)
        return first

    assert side_effects.slip(ours, answer, passes(range(2), twice)) is None
