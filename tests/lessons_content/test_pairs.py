"""Answers that make several mistakes at once, of which one is named."""

import math
import random

import pytest

from answers import every_exercise, is_built
from lessons_content.mistakes import pairs
from lessons_lib import checks
from verdicts import recorded_verdicts

PYTHON = [exercise for exercise in every_exercise() if not is_built(exercise)]
# The faults of the texts that the course is built on (exercises 2.5, 3.1, 3.4 and 4.2), all of
# a text at once, in the order in which they are to be named.
TEXTS = {
    "2.5": ["leak-on-failed-append", "writes-into-shared-block"],
    "3.1": ["not-causal", "missing-scale", "tail-not-masked"],
    "3.4": [
        "flash-drops-accumulator",
        "diagonal-page-unmasked",
        "missing-scale",
        "tail-not-masked",
    ],
    "4.2": ["missing-scale", "tail-not-masked"],
}


def at_once(exercise, slugs: list[str]) -> list[str]:
    """Our answer with the first forms of all these mistakes."""
    bank = exercise.mistakes
    forms = dict(bank.first_forms())
    texts = [bank.answer]
    for slug in slugs:
        texts = [new for text in texts for new in forms[slug].texts_of(text)]
    return texts


@pytest.mark.parametrize("exercise_id", TEXTS)
def test_of_all_faults_of_a_text_the_first_is_named(exercise_id):
    exercise = checks.find(exercise_id)
    slugs = TEXTS[exercise_id]
    for start in range(len(slugs) - 1):
        forms = [*map(exercise.mistakes.form, at_once(exercise, slugs[start:]))]
        assert forms
        for verdict in recorded_verdicts(exercise, forms):
            assert verdict.mistake == slugs[start]


def two_of(exercise, chance) -> tuple[set[str], list, list, list] | None:
    """Two mistakes that no section has together, and what explain() is given."""
    bank = exercise.mistakes
    cases = exercise.in_order(exercise.cases())
    expected = [checks.attempt(exercise, exercise.reference, case) for case in cases]
    slugs = [slug for slug, _ in bank.first_forms()]
    for _ in range(60):
        chosen = chance.sample(slugs, 2)
        for text in at_once(exercise, chosen)[:1]:
            form = bank.form(text)
            if recorded_verdicts(exercise, [form])[0].mistake == "wrong":
                given = [checks.attempt(exercise, form, case) for case in cases]
                return {*chosen}, cases, given, expected
    return None


@pytest.mark.parametrize("exercise_id", ["0.1", "2.3", "5.4", "9.5"])
def test_of_two_mistakes_one_is_named(exercise_id):
    exercise = checks.find(exercise_id)
    found = two_of(exercise, random.Random(exercise_id))
    assert found, "no two mistakes go together"
    slugs, *results = found
    slug, message = pairs.find(exercise.mistakes, exercise, *results, work=math.inf)
    assert slug in slugs and message.endswith(pairs.BESIDES)


def test_what_no_two_mistakes_give_has_no_name():
    exercise = checks.find("0.1")
    cases = exercise.in_order(exercise.cases())
    expected = [checks.attempt(exercise, exercise.reference, case) for case in cases]
    given = [-7 for _ in cases]
    assert pairs.find(exercise.mistakes, exercise, cases, given, expected) is None
    assert pairs.find(exercise.mistakes, exercise, cases, expected, expected) is None
