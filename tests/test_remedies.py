"""An answer whose result is right, and that does something beside it, is named."""

import functools
import inspect

import pytest
import torch

from answers import every_exercise
from lessons_lib import checks, remedies

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


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda exercise: exercise.id)
def test_a_changed_argument_passes_or_has_a_name(exercise):
    for name in inspect.signature(exercise.reference).parameters:
        if (exercise.id, name) not in RESULTS:
            result = checks.run(exercise.id, changing(exercise.reference, name))
            assert result.passed or result.mistake != "wrong", (name, result.message)


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

    slug, message = remedies.slip(doubled, answer, passes(range(4), observe))
    assert slug == "arguments-changed" and "`values` and `weights`" in message


def test_what_our_answer_changes_too_is_not_undone():
    def ours(values, weights):
        values.append(1)

    def answer(values, weights):
        values.append(1)
        weights.add_(1)

    slug, message = remedies.slip(ours, answer, passes(range(4), observe))
    assert (
        slug == "arguments-changed"
        and "`weights` changes" in message
        and "values" not in message
    )


def test_a_wrong_result_beside_a_changed_argument_has_no_name():
    def answer(values, weights):
        values.clear()
        return values

    assert remedies.slip(doubled, answer, passes(range(4), observe)) is None


def test_a_result_that_something_else_uses_is_named():
    inner = []

    def ours(size):
        return [0] * size

    def answer(size):
        inner[:] = [0] * size
        return inner

    def twice(function, size):
        first = function(size)
        return first, function(size + 1)

    slug, message = remedies.slip(ours, answer, passes(range(4), twice))
    assert slug == "result-shared" and "is not a new object" in message


def test_the_remedies_are_for_functions_alone():
    class Answer:
        pass

    assert remedies.slip(Answer, Answer, passes((), observe)) is None
    assert remedies.slip(doubled, Answer, passes((), observe)) is None


def test_nan_that_stays_is_no_change():
    weights = torch.tensor([float("nan"), 1.0])
    assert not remedies._restore_tensor(weights, weights.clone())
    before = weights.clone()
    weights[1] = 2
    assert remedies._restore_tensor(weights, before, False) and weights[1] == 2
    assert remedies._restore_tensor(weights, before) and weights[1] == 1
