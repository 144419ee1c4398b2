"""The verdicts on many answers to one exercise, all from one process to save time.

An answer that ends the process is checked again by itself, and the rest in a new one. A known
mistake runs once on a case, not again for each answer that it may explain.
"""

import dataclasses
from unittest import mock

import torch

from lessons_lib import checks
from lessons_lib.checks import naming
from lessons_lib.processes import isolation

FIRST_LIMIT = 120.0  # seconds, because the known mistakes run with the first answer
ANSWER_LIMIT = 15.0


def verdicts(exercise_id: str, answers: list) -> list[checks.CheckResult]:
    """What `checks.run` says of each answer to an exercise in Python."""
    found = []

    def keep(verdict) -> float:
        found.append(verdict)
        return ANSWER_LIMIT

    while len(found) < len(answers):
        outcome = isolation.run_isolated(
            _compare_all,
            exercise_id,
            answers[len(found) :],
            time_limit=FIRST_LIMIT,
            report=True,
            on_report=keep,
        )
        if outcome.ending == "raised":
            raise outcome.error
        if outcome.ending != "returned":
            found.append(checks.run(exercise_id, answers[len(found)]))
    return found


def _compare_all(exercise_id: str, answers: list, report):
    """Runs in the isolated process, and reports each verdict."""
    torch.set_num_threads(1)
    exercise = checks.find(exercise_id)
    cases = list(exercise.cases())
    exercise = dataclasses.replace(exercise, cases=lambda: cases)
    attempt, results = naming.attempt, {}

    def attempt_once(exercise, form, case):
        key = id(form), id(case)
        if key not in results:
            results[key] = attempt(exercise, form, case)
        return results[key]

    with mock.patch.object(naming, "attempt", attempt_once):
        for answer in answers:
            subject = exercise.prepare(answer)
            report(
                checks.compare(
                    exercise,
                    lambda _, case: attempt_once(exercise, exercise.reference, case),
                    lambda _, case, subject=subject: attempt(exercise, subject, case),
                    lambda _: None,
                )
            )


def recorded_verdicts(exercise: checks.Exercise, forms: list) -> list[checks.CheckResult]:
    """What `checks.run` says of forms, by their records. What is not recorded is tried."""
    cases = exercise.in_order(exercise.cases())
    expected = [checks.attempt(exercise, exercise.reference, case) for case in cases]

    def verdict(form) -> checks.CheckResult:
        if slug := exercise.recognise(form.text):
            return checks.CheckResult(exercise.id, False, slug, "")

        def result(number, case):
            recorded = form.record(number)
            return recorded[1] if recorded else checks.attempt(exercise, form, case)

        found = checks.compare(
            exercise,
            lambda number, _: expected[number],
            result,
            lambda _: None,
        )
        return checks.named_from_text(exercise, form.text, found)

    return [verdict(form) for form in forms]
