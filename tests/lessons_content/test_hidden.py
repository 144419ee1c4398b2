"""The hidden cases that grades use: others for each seed, passed by right answers, and of use
without the visible ones.
"""

import functools

import pytest

from answers import every_exercise, is_built, our_answer, own_mistake, own_slugs
from lessons_lib import checks
from lessons_lib.processes import isolation
from right_answers import RIGHT_ANSWERS

SEEDS = 1, 2, 3
EXERCISES = every_exercise()
by_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
# those that are built take seconds for each mistake
BUILT = pytest.mark.slow(nightly=True)
mostly_python = pytest.mark.parametrize(
    "exercise",
    [
        pytest.param(exercise, id=exercise.id, marks=BUILT if is_built(exercise) else ())
        for exercise in EXERCISES
    ],
)


def attempts(exercise, subject, cases):
    return [checks.attempt(exercise, subject, case) for case in cases]


@pytest.mark.sampled(4)
@by_exercise
def test_each_seed_has_described_cases_of_its_own(exercise):
    visible = set(map(repr, exercise.cases()))
    drawn = [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    assert drawn == [list(map(repr, exercise.hidden(seed))) for seed in SEEDS]
    for cases, others in zip(drawn, drawn[1:] + drawn[:1], strict=True):
        assert len(set(cases)) >= 5, f"{exercise.id} draws too few hidden cases; it needs five"
        assert 2 * len(set(cases) - visible) >= len(cases)
        assert 2 * len(set(cases) - set(others)) >= len(cases)
    texts = [exercise.describe(case) for seed in SEEDS for case in exercise.hidden(seed)]
    assert all(isinstance(text, str) and text for text in texts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sampled
@mostly_python
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


@pytest.mark.sampled
@mostly_python
def test_they_catch_the_known_mistakes_alone(exercise):
    """A student who knows the visible cases by heart is found out: each seed catches most
    mistakes, and the three seeds at least nine in ten. Some mistakes need their own case, such
    as scores so large that right answers agree on chosen numbers only. The visible cases,
    which a grade uses too, have all of these.
    """
    slugs = own_slugs(exercise)
    uncaught = [
        {slug for slug in slugs if not catches(exercise, slug, seed)} for seed in SEEDS
    ]
    assert all(2 * len(found) < len(slugs) for found in uncaught), uncaught
    assert 10 * len(set.intersection(*uncaught)) <= len(slugs), set.intersection(*uncaught)


def catches(exercise, slug: str, seed: int) -> bool:
    """Whether a case of this seed shows a mistake. C++ and CUDA may crash their process."""
    if not is_built(exercise):
        return catches_here(exercise.id, slug, seed)
    outcome = isolation.run_isolated(
        catches_here, exercise.id, slug, seed, time_limit=checks.BUILD_TIME_LIMIT
    )
    if outcome.error:
        raise outcome.error
    return outcome.value if outcome.ending == "returned" else outcome.ending == "crashed"


def catches_here(exercise_id: str, slug: str, seed: int) -> bool:
    exercise = checks.find(exercise_id)
    return caught(exercise, own_mistake(exercise, slug).wrong, *drawn_cases(exercise_id, seed))


@functools.cache
def drawn_cases(exercise_id: str, seed: int):
    """The hidden cases of a seed, and our results."""
    exercise = checks.find(exercise_id)
    cases = list(exercise.hidden(seed))
    return cases, attempts(exercise, exercise.reference, cases)


def caught(exercise, wrong, cases, expected):
    """Whether a case shows it, and then in two texts that differ."""
    for case, ours in zip(cases, expected, strict=True):
        theirs = checks.attempt(exercise, wrong, case)
        if not exercise.same(ours, theirs):
            texts = exercise.show(ours, theirs)
            assert texts[0] != texts[1]
            assert all(isinstance(text, str) and text for text in texts)
            return True
    return False
