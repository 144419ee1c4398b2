"""Each known mistake is caught and named, ours and other right answers pass, and every
exercise is complete.
"""

import ast
import functools
import subprocess
import sys

import pytest

from answers import (
    every_exercise,
    our_answer,
    own_mistake,
    own_mistakes,
    own_slugs,
    wrong_answer,
)
from lessons_content.exercises import tensors
from lessons_lib import checks
from lessons_lib.paths import ROOT
from right_answers import HERE, RIGHT_ANSWERS, RIGHT_TEXTS, WRONG_ANSWERS, answers_file
from verdicts import verdicts

EXERCISES = every_exercise()
PYTHON_EXERCISES = [exercise for exercise in EXERCISES if exercise.language == "python"]
MISTAKES = [(exercise, slug) for exercise in EXERCISES for slug in own_slugs(exercise)]


def marks(exercise) -> list:
    """One of many alike is built; and one process tries all that one exercise in Python has,
    so that of these `make test` takes every twelfth exercise.
    """
    if exercise.language != "python":
        return [pytest.mark.sampled]
    return [pytest.mark.slow] if PYTHON_EXERCISES.index(exercise) % 12 != 7 else []


RIGHT = [
    pytest.param(exercise, number, marks=marks(exercise))
    for exercise in EXERCISES
    for number in range(len(RIGHT_ANSWERS[exercise.id]))
]
RESPELT = [
    pytest.param(exercise, slug, number, marks=marks(exercise))
    for exercise in EXERCISES
    for slug, answers in WRONG_ANSWERS.get(exercise.id, {}).items()
    for number in range(len(answers))
]
by_id = functools.partial(
    pytest.mark.parametrize,
    ids=lambda value: getattr(value, "slug", getattr(value, "id", value)),
)


@functools.cache
def python_verdicts(exercise_id):
    """{(slug, number): verdict} on each known mistake of an exercise in Python, number 0, and
    on other spellings, numbered from -1 downwards; and on right answers, by their number.
    """
    exercise = checks.find(exercise_id)
    answers = {(mistake.slug, 0): mistake.wrong.load() for mistake in own_mistakes(exercise)}
    answers |= {
        (slug, ~number): answer
        for slug, spelt in WRONG_ANSWERS.get(exercise.id, {}).items()
        for number, answer in enumerate(spelt)
    }
    answers |= {
        ("right", number): answer for number, answer in enumerate(RIGHT_ANSWERS[exercise.id])
    }
    return dict(zip(answers, verdicts(exercise.id, list(answers.values())), strict=True))


def verdict_on(exercise, slug, number, answer):
    """One process gives all of them.

    If that is not what is expected, a separate process decides.
    """
    verdict = python_verdicts(exercise.id)[slug, number]
    if verdict.mistake != (None if slug == "right" else slug):
        verdict = checks.run(exercise.id, answer)
    return verdict


def why(result, slug) -> str:
    """What is wrong with an answer that should be named `slug`, for those who wrote it."""
    if result.passed:
        return f"{slug} passes all cases: a case is missing"
    return (
        f"{slug} is named {result.mistake}. If both give the same results, they are one "
        f"mistake, or a case is missing. The learner reads:\n{result.message}"
    )


@by_id(
    "exercise, slug",
    [pytest.param(exercise, slug, marks=marks(exercise)) for exercise, slug in MISTAKES],
)
def test_a_known_mistake_is_caught_and_named(exercise, slug):
    mistake = own_mistake(exercise, slug)
    if exercise.language == "python":
        result = verdict_on(exercise, mistake.slug, 0, mistake.wrong.load())
    else:
        result = checks.run(exercise.id, wrong_answer(exercise, mistake))
    assert (result.passed, result.mistake) == (False, mistake.slug), why(result, mistake.slug)
    assert result.message.startswith(mistake.message)
    assert (
        exercise.recognise(wrong_answer(exercise, mistake))
        or " case that shows it: " in result.message
    )


@by_id("exercise, slug, number", RESPELT)
def test_a_known_mistake_in_another_spelling_is_named(exercise, slug, number):
    answer = WRONG_ANSWERS[exercise.id][slug][number]
    if exercise.language == "python":
        result = verdict_on(exercise, slug, ~number, answer)
    else:
        result = checks.run(exercise.id, answer)
    assert (result.passed, result.mistake) == (False, slug), why(result, slug)


# The lessons' own cells check our answers too.
@by_id("exercise", [pytest.param(exercise, marks=marks(exercise)) for exercise in EXERCISES])
def test_our_answer_passes(exercise):
    result = checks.run(exercise.id, our_answer(exercise))
    assert result.passed and result.mistake is None, result.message


@by_id("exercise, number", RIGHT)
def test_a_different_right_answer_passes(exercise, number):
    answer = RIGHT_ANSWERS[exercise.id][number]
    if exercise.language == "python" and number:
        result = verdict_on(exercise, "right", number, answer)
    else:
        result = checks.run(exercise.id, answer)
    assert result.passed, result.message


def test_no_check_imports_what_takes_long():
    """What a check imports is imported again in the process of each run."""
    program = (
        "import sys\nfrom lessons_lib import checks\n"
        f"for id in {[exercise.id for exercise in EXERCISES]}:\n"
        "    list(checks.find(id).cases())\n"
        "slow = {'torch._dynamo', 'sympy', 'transformers', 'matplotlib', 'IPython'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    words = [sys.executable, "-c", program]
    run = subprocess.run(words, text=True, capture_output=True, check=True)
    assert run.stdout == "[]\n"


@by_id("exercise", PYTHON_EXERCISES)
def test_no_result_of_ours_is_nan(exercise):
    """Checks take NaN for equal to NaN, so that a mistake that gives NaN can be named; ours
    must never give one.
    """
    for case in exercise.cases():
        result = exercise.observe(exercise.reference, case)
        for part in result if isinstance(result, tuple) else (result,):
            if isinstance(part, tensors.Values):
                assert not part.tensor.isnan().any()


def test_a_file_of_answers_is_that_of_an_exercise():
    assert {*HERE.rglob("*.answers")} == set(map(answers_file, EXERCISES))


@by_id("exercise", EXERCISES)
def test_there_are_three_different_right_answers(exercise):
    texts = set(RIGHT_TEXTS[exercise.id])
    if exercise.language == "python":
        texts = {ast.unparse(ast.parse(text)) for text in texts}
    place = answers_file(exercise).relative_to(ROOT)
    assert len(texts) >= 3, (
        f"{place} has {len(texts)} right answers to {exercise.id}; it needs three"
    )


@by_id("exercise", EXERCISES)
def test_an_exercise_is_complete(exercise):
    slugs = own_slugs(exercise)
    assert len(set(slugs)) == len(slugs), "two mistakes have the same slug"
    assert len(slugs) >= 3, f"{exercise.id} has {len(slugs)} mistakes; it needs three"
    assert len(exercise.hints) >= 2, f"{exercise.id} needs two hints"
    assert all(mistake.message.endswith((".", "?", ".)")) for mistake in exercise.mistakes)


@pytest.mark.sampled
@by_id("exercise", PYTHON_EXERCISES)
def test_no_mistake_of_another_exercise_passes(exercise):
    """Handed to the wrong check, an answer of the right kind has to show itself on some
    case.
    """
    cases = list(exercise.cases())
    expected = [checks.attempt(exercise, exercise.reference, case) for case in cases]
    for other, slug in MISTAKES:
        if other.language == "python" and other.id != exercise.id:
            wrong = own_mistake(other, slug).wrong
            assert any(
                not exercise.same(result, checks.attempt(exercise, wrong, case))
                for case, result in zip(cases, expected, strict=True)
            ), (other.id, slug)
