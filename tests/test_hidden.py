"""The hidden cases that grades use: others for each seed, passed by right answers, and of use
without the visible ones.
"""

import time

import pytest

from answers import every_exercise, our_answer, own_mistakes, wrong_answer
from lessons_lib import checks
from right_answers import RIGHT_ANSWERS

SEEDS = 1, 2, 3
EXERCISES = every_exercise()
by_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)

# The models of these know the visible cases alone; as kernels they are caught, see the last
# test.
HUNTED = {
    "no-dynamic-smem",
    "missing-barrier",
    "barrier-in-branch",
    "shared-alias",
    "empty-context-unwritten",
    "fixed-score-buffer",
    "max-starts-at-zero",
}


def attempts(exercise, subject, cases):
    return [checks._attempt(exercise, subject, case) for case in cases]


@by_exercise
def test_each_seed_has_cases_of_its_own(exercise):
    visible = set(map(repr, exercise.cases()))
    drawn = [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    assert drawn == [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    for cases, others in zip(drawn, drawn[1:] + drawn[:1], strict=True):
        assert len(set(cases)) >= 5, f"{exercise.id} draws too few hidden cases; it needs five"
        assert 2 * len(set(cases) - visible) >= len(cases)
        assert 2 * len(set(cases) - set(others)) >= len(cases)


@by_exercise
def test_each_case_has_a_description(exercise):
    for case in (case for seed in SEEDS for case in exercise.hidden(seed)):
        text = exercise.describe(case)
        assert isinstance(text, str) and text


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])]
)
@by_exercise
def test_right_answers_pass(exercise, seed):
    drawn = list(exercise.hidden(seed))
    expected = attempts(exercise, exercise.reference, drawn)
    for answer in (our_answer(exercise), *RIGHT_ANSWERS[exercise.id]):
        subject = exercise.prepare(answer)
        for case, ours, theirs in zip(
            drawn, expected, attempts(exercise, subject, drawn), strict=True
        ):
            assert exercise.same(ours, theirs), (
                f"{exercise.describe(case)}\n{exercise.show(ours, theirs)}"
            )


@pytest.mark.slow
@pytest.mark.alone
@by_exercise
def test_our_answer_takes_less_than_a_second_once_it_is_built(exercise):
    subject, times = exercise.prepare(our_answer(exercise)), []
    for seed in SEEDS:
        started = time.monotonic()
        cases = list(exercise.hidden(seed))
        attempts(exercise, exercise.reference, cases), attempts(exercise, subject, cases)
        times.append(time.monotonic() - started)
    assert min(times) < 1


@by_exercise
def test_they_catch_the_known_mistakes_alone(exercise):
    """Who knows the visible cases by heart is found out: each seed catches most mistakes, and
    the three at least nine in ten. Some need a case made for them, such as scores so large
    that right answers agree on chosen numbers only; the visible cases, which a grade uses as
    well, have all of these.
    """
    mistakes = {
        mistake.slug: mistake.wrong
        for mistake in own_mistakes(exercise)
        if mistake.wrong is not None
    }
    uncaught = []
    for seed in SEEDS:
        cases = list(exercise.hidden(seed))
        expected = attempts(exercise, exercise.reference, cases)
        uncaught.append(
            {
                slug
                for slug, wrong in mistakes.items()
                if not caught(exercise, wrong, cases, expected)
            }
        )
        uncaught[-1] -= HUNTED if exercise.id == "6.8" else set()
        assert 2 * len(uncaught[-1]) < len(mistakes)
    assert 10 * len(set.intersection(*uncaught)) <= len(mistakes), set.intersection(*uncaught)


def caught(exercise, wrong, cases, expected):
    """Whether a case shows it, and then in two texts that differ."""
    for case, ours in zip(cases, expected, strict=True):
        theirs = checks._attempt(exercise, wrong, case)
        if not exercise.same(ours, theirs):
            texts = exercise.show(ours, theirs)
            assert texts[0] != texts[1] and all(
                isinstance(text, str) and text for text in texts
            )
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("slug", sorted(HUNTED))
def test_they_catch_the_faults_of_the_hunted_kernel(slug):
    exercise = checks.find("6.8")
    mistake = next(mistake for mistake in exercise.mistakes if mistake.slug == slug)
    cases = list(exercise.hidden(1))
    subject = exercise.prepare(wrong_answer(exercise, mistake))
    assert caught(exercise, subject, cases, attempts(exercise, exercise.reference, cases))
