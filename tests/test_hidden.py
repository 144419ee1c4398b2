"""The hidden cases that grades use: others for each seed, passed by right answers, and of use without the visible ones."""

import time

import pytest
from answers import every_exercise, our_answer
from right_answers import RIGHT_ANSWERS

from lessons_lib import checks
from lessons_lib.checks import Raised

SEEDS = 1, 2, 3
EXERCISES = every_exercise()
by_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


def attempts(exercise, subject, cases):
    return [checks._attempt(exercise, subject, case) for case in cases]


def assert_same(exercise, subject, cases, expected):
    for case, ours, theirs in zip(cases, expected, attempts(exercise, subject, cases), strict=True):
        assert exercise.same(ours, theirs), f"{exercise.describe(case)}\n{exercise.show(ours, theirs)}"


@by_exercise
def test_each_seed_has_cases_of_its_own(exercise):
    visible = set(map(repr, exercise.cases()))
    drawn = [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    assert drawn == [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    for cases, others in zip(drawn, drawn[1:] + drawn[:1], strict=True):
        assert len(set(cases)) == len(cases) >= 5
        assert 2 * len(set(cases) - visible) >= len(cases)
        assert 2 * len(set(cases) - set(others)) >= len(cases)


@by_exercise
def test_right_answers_pass(exercise):
    drawn = [list(exercise.hidden(seed)) for seed in SEEDS]
    expected = [attempts(exercise, exercise.reference, cases) for cases in drawn]
    for answer in (our_answer(exercise), *RIGHT_ANSWERS[exercise.id]):
        subject = exercise.prepare(answer)
        for cases, ours in zip(drawn, expected, strict=True):
            assert_same(exercise, subject, cases, ours)


@pytest.mark.alone
@by_exercise
def test_our_answer_takes_less_than_a_second(exercise):
    subject, times = exercise.prepare(our_answer(exercise)), []
    for seed in SEEDS:
        started = time.monotonic()
        for case in exercise.hidden(seed):
            exercise.same(checks._attempt(exercise, exercise.reference, case), checks._attempt(exercise, subject, case))
        times.append(time.monotonic() - started)
    assert min(times) < 1


# Mistakes that the hidden cases of some seed do not catch.
LEFT = {}


@by_exercise
def test_they_catch_the_known_mistakes_alone(exercise):
    """Whoever knows the visible cases by heart is still found out."""
    left = set()
    for seed in SEEDS:
        cases = list(exercise.hidden(seed))
        expected = attempts(exercise, exercise.reference, cases)
        for mistake in exercise.mistakes:
            if mistake.wrong is not None and not _catches(exercise, mistake.wrong, cases, expected):
                left.add(mistake.slug)
    assert left <= LEFT.get(exercise.id, set())


def _catches(exercise, wrong, cases, expected):
    for case, ours in zip(cases, expected, strict=True):
        theirs = checks._attempt(exercise, wrong, case)
        if not exercise.same(ours, theirs):
            texts = exercise.show(ours, theirs)
            assert texts[0] != texts[1] and all(isinstance(text, str) and text for text in texts)
            return True
    return False


@by_exercise
def test_each_case_has_a_description(exercise):
    for seed in SEEDS:
        texts = [exercise.describe(case) for case in exercise.hidden(seed)]
        assert all(isinstance(text, str) and text for text in texts)


@by_exercise
def test_no_result_of_ours_is_an_error_of_the_case(exercise):
    """Where ours raises, it is an error that the exercise speaks of, and not one from a case that cannot be made."""
    for case in exercise.hidden(1):
        result = checks._attempt(exercise, exercise.reference, case)
        if isinstance(result, Raised):
            assert exercise.id in ("1.2",), result
