"""A list where the text says a tuple is right, and so is a tuple where it says a list, unless
the result is a list that goes on to change.
"""

import functools

import pytest

from answers import every_exercise, our_answer
from lessons_lib import checks

GROWS = {"1.5"}  # the sequence that begins with this list grows
IN_TURN = {list: tuple, tuple: list}


def exchanged(result):
    """`result` with lists for tuples and tuples for lists, at all depths."""
    other = IN_TURN.get(type(result))
    return other(map(exchanged, result)) if other else result


def is_a_function(exercise) -> bool:
    return exercise.language == "python" and not isinstance(exercise.reference, type)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "exercise", [*filter(is_a_function, every_exercise())], ids=lambda exercise: exercise.id
)
def test_lists_and_tuples_are_one(exercise):
    ours, changed = our_answer(exercise), []

    @functools.wraps(ours)
    def answer(*arguments, **named):
        result = ours(*arguments, **named)
        changed.append(type(result) in IN_TURN)
        return exchanged(result)

    found = checks.compare(
        exercise,
        lambda _, case: checks.attempt(exercise, exercise.reference, case),
        lambda _, case: checks.attempt(exercise, answer, case),
        lambda _: None,
    )
    if exercise.id in GROWS and any(changed):
        assert found.mistake == "not-a-list"
    else:
        assert found.passed, found.message
