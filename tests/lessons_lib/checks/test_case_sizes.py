"""A check shows its smallest case that an answer fails on: its cases are ordered by size."""

import random
from dataclasses import replace

import pytest

from answers import attempt, every_exercise, forms_of
from lessons_lib import checks

EXERCISES = every_exercise()
pytestmark = pytest.mark.usefixtures("one_thread")
by_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


def numbers(size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


@by_exercise
def test_cases_go_from_small_to_large_and_those_that_chance_decides_come_last(exercise):
    for cases in map(list, (exercise.cases(), *map(exercise.hidden, (1, 2, 3)))):
        ordered = exercise.in_order(cases)
        certain, chancy = (
            [case for case in ordered if bool(exercise.chancy(case)) == group]
            for group in (False, True)
        )
        sizes = list(map(exercise.size, certain))
        assert all(small <= large for small, large in zip(sizes, sizes[1:]))
        assert all(
            isinstance(number, int) and number >= 0
            for size in sizes
            for number in numbers(size)
        )
        assert list(map(id, ordered)) == list(
            map(id, certain + [case for case in cases if exercise.chancy(case)])
        )


@by_exercise
def test_a_case_that_has_more_in_it_is_larger(exercise):
    """A size says something: two cases with one description are of one size, and not all cases
    are.
    """
    sizes = {}
    for case in (case for case in exercise.cases() if not exercise.chancy(case)):
        assert sizes.setdefault(exercise.describe(case), exercise.size(case)) == exercise.size(
            case
        )
    # one call too many each; as in hunt()
    assert len(set(sizes.values())) > 1 or exercise.id in ("1.4", "6.8")


@pytest.mark.sampled
@by_exercise
def test_the_smallest_case_that_shows_a_mistake_is_shown_in_whatever_order_they_are(exercise):
    cases = list(exercise.cases())
    numbers = {id(case): n for n, case in enumerate(exercise.in_order(cases))}
    random.Random(0).shuffle(cases)
    unnamed = replace(exercise, mistakes=(), cases=lambda: cases)
    expected = {
        id(case): attempt(exercise, exercise.reference, numbers[id(case)], case)
        for case in cases
    }
    for slug, form in forms_of(exercise):
        # the cases that it passes, and those that show it, as they come
        passed, shown = [], []

        def attempt_next(_, case, form=form, passed=passed, shown=shown):
            result = attempt(exercise, form, numbers[id(case)], case)
            (passed if exercise.same(expected[id(case)], result) else shown).append(case)
            return result

        verdict = checks.compare(
            unnamed, lambda _, case: expected[id(case)], attempt_next, lambda _: None
        )
        which = "First" if exercise.chancy(shown[0]) else "Smallest"
        assert (
            f"{which} case that shows it: {exercise.describe(shown[0])}\n" in verdict.message
        )
        smaller = [
            case
            for case in cases
            if not exercise.chancy(case)
            and (which == "First" or exercise.size(case) < exercise.size(shown[0]))
        ]
        assert {id(case) for case in smaller} <= {id(case) for case in passed}, slug


@pytest.mark.parametrize(
    "exercise, small, large",
    [
        ("0.1", (1, 16), (2, 16)),
        ("1.1", (1, ("pop",)), (2, ("pop",))),
        ("1.1", (3, ()), (1, ("pop",))),
        ("1.2", (1, (("allocate",),)), (1, (("allocate",), ("free", 0)))),
        ("1.5", (2, [], 0), (2, [0], 0)),
        ("2.2", (2, [3], [0], 1), (2, [3, 1], [1, 2], 0)),
        ("5.1", (3,), (1, 1)),
        ("7.7", ([1, 1], 1), ([3], 1)),
    ],
)
def test_a_size_is_what_a_reader_would_say(exercise, small, large):
    size = checks.find(exercise).size
    assert size(small) < size(large)
