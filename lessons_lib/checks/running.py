"""Runs an answer in a separate process, and compares its results with those of our answer.

Both run on the same cases, smallest first. If their results differ, each known mistake is
compared on these cases too. The learner made the mistake that gives exactly the same results
as the answer.
"""

import inspect
import linecache
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lessons_lib import machine
from lessons_lib.checks.naming import (
    MOST_BUILDS,
    NAMING_WORK,
    attempt,
    every_form,
    failure_of,
    raised,
    with_suspects,
)
from lessons_lib.checks.registry import find
from lessons_lib.checks.types import (
    CRASH,
    NOT_JUDGED,
    CheckResult,
    Exercise,
    Failure,
    Raised,
    Stuck,
)
from lessons_lib.checks.verdicts import (
    from_broken_run,
    in_general,
    is_a_stubs,
    named_from_text,
    not_sendable,
    refuse,
    said_as,
    stub_reached,
    verdict_of,
    with_printed,
)
from lessons_lib.processes import added_methods, child, isolation

BUILD_TIME_LIMIT = 120.0  # seconds; a build takes 1 to 10
# Limits for telling apart several mistakes that fit a wrong answer: seconds of this thread's
# work, and calls that never came back. Clock time does not count, so that a busy machine finds
# the same mistake.
NARROWING_WORK = 1.0
NARROWING_WAITS = 2


def run(exercise_id: str, answer: object) -> CheckResult:
    """Checks a function, a class, or a C++ exercise's text. A wrong answer never raises."""
    exercise = find(exercise_id)
    refused = refuse(exercise, answer)
    if refused:
        return refused
    answer = added_methods.carried(answer)
    verdict, outcome = _try(exercise, answer)
    if verdict.passed or not machine.may_be_at_fault(outcome, verdict.message):
        return verdict

    def try_ours(text: str) -> str:
        is_text = exercise.language != "python"
        return _try(exercise, text if is_text else exercise.reference)[0].message

    fault = machine.fault(exercise.id, try_ours)
    return CheckResult(exercise.id, False, NOT_JUDGED, fault) if fault else verdict


def _try(exercise: Exercise, answer) -> tuple[CheckResult, isolation.Outcome]:
    """The verdict on an answer, and how the process ended that gave it."""
    try:
        if exercise.language != "python":
            # The build has its own time limit, so that the limit of the run can be short.
            built = isolation.run_isolated(
                _prepare, exercise.id, answer, time_limit=BUILD_TIME_LIMIT
            )
            if built.ending != "returned":
                return from_broken_run(exercise, built), built
        outcome = _run_isolated(exercise, answer, {})
        if not crashed_first(outcome):
            return _verdict_on(exercise, answer, outcome), outcome
        # Run once more without that case. A crash alone fits many mistakes; the results of
        # the larger cases tell them apart.
        again = _run_isolated(exercise, answer, {outcome.last_report[0]: CRASH})
    except TypeError as error:
        return not_sendable(exercise, error), isolation.Outcome("returned")
    except (OSError, RuntimeError) as error:  # no process could be started
        outcome = isolation.Outcome("raised", error=error)
        return from_broken_run(exercise, outcome), outcome
    again = replace(again, printed=outcome.printed)
    return in_general(_verdict_on(exercise, answer, again), outcome), outcome


def _run_isolated(exercise: Exercise, answer, ended: dict) -> isolation.Outcome:
    """Tries the answer.

    Once the answer has failed, there is extra time for naming its mistake.
    """
    failed = False

    def further_time(about: tuple[int, Failure | None]) -> float | None:
        nonlocal failed
        begins, failed = not failed and about[1] is not None, about[1] is not None
        building = 0 if exercise.language == "python" else MOST_BUILDS * BUILD_TIME_LIMIT
        return exercise.time_limit + NAMING_WORK + building if begins else None

    return isolation.run_isolated(
        _examine,
        exercise.id,
        answer,
        ended,
        _sources(answer),
        time_limit=exercise.time_limit,
        report=True,
        on_report=further_time,
    )


def _sources(answer) -> dict[str, list[str]]:
    """The lines of the cell that defines the answer, by the file name that its code has."""
    code = getattr(getattr(answer, "__wrapped__", answer), "__code__", None)
    if inspect.isclass(answer):
        functions = filter(inspect.isfunction, vars(answer).values())
        code = next((function.__code__ for function in functions), None)
    return {code.co_filename: linecache.getlines(code.co_filename)} if code else {}


def crashed_first(outcome: isolation.Outcome) -> bool:
    """Whether a run crashed before any case showed a difference."""
    return (
        outcome.ending == "crashed"
        and outcome.last_report is not None
        and outcome.last_report[1] is None
    )


def _verdict_on(exercise: Exercise, answer, outcome: isolation.Outcome) -> CheckResult:
    if outcome.ending != "returned":
        return named_from_text(exercise, answer, from_broken_run(exercise, outcome))
    verdict = named_from_text(exercise, answer, with_printed(outcome.value, outcome.printed))
    tell = getattr(exercise.mistakes, "tell", None)
    return tell(exercise, answer, verdict) if tell else verdict


def _prepare(exercise_id: str, answer):
    find(exercise_id).prepare(answer)


def _examine(
    exercise_id: str, answer, ended: dict, sources: dict[str, list[str]], report
) -> CheckResult:
    """Runs in the isolated process. Reports each case before it runs, as it may end the
    process.

    ended: results of cases that crashed an earlier process, by number. They do not run again.
    sources: the lines of the learner's cells, by the file name that their code has.
    """
    import torch

    torch.set_num_threads(1)  # the tensors are small, so more threads would mostly wait
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    exercise = find(exercise_id)
    subject = exercise.prepare(answer)

    def attempt_here(number, case):
        return ended.get(number) or child.keeping_reserve(
            attempt, exercise, subject, case, otherwise=raised
        )

    def report_printed(about: tuple[int, Failure | None]):
        child.keep_printed(about[1] is None)
        # a failure gets more time, for naming its mistake
        report(about, waits=about[1] is not None)

    verdict = compare(
        exercise,
        lambda number, case: attempt(exercise, exercise.reference, case),
        attempt_here,
        report_printed,
        builds=True,
    )
    if verdict.passed or ended:
        return verdict
    # Looking for such a slip calls the answer again.
    return child.keeping_reserve(
        _beside, exercise, subject, verdict, otherwise=lambda error: verdict
    )


def _beside(exercise: Exercise, subject, verdict: CheckResult) -> CheckResult:
    """The verdict on a wrong answer, named by a rule for all exercises if one fits.

    A mistake that has a name keeps it, unless a rule finds the line that made it.
    """
    from lessons_lib.checks import (
        side_effects,  # imports PyTorch, which the notebook may not need
    )

    def passes(theirs, ours) -> bool:
        return all(
            exercise.same(attempt(exercise, ours, case), attempt(exercise, theirs, case))
            for case in exercise.in_order(exercise.cases())
        )

    slip = None
    if verdict.mistake == "wrong":
        slip = side_effects.slip(exercise.reference, subject, passes)
    if slip is None and hasattr(exercise.mistakes, "explain"):
        slip = exercise.mistakes.explain(exercise, subject, verdict)
    return said_as(verdict, *slip) if slip else verdict


def compare(
    exercise: Exercise,
    expect: Callable[[int, Any], object],
    observe: Callable[[int, Any], object],
    report: Callable[[tuple[int, Failure | None]], object],
    builds: bool = False,
) -> CheckResult:
    """The verdict on an answer.

    expect: called with (number, case), gives our result.
    observe: called with (number, case), gives the answer's result.
    report: called before each case with (number, failure); failure is None until there is one.
    builds: whether mistakes in C++ and CUDA may run here, where they may crash the process.
    """
    cases = enumerate(exercise.in_order(exercise.cases()))
    seen: list[tuple[int, Any, object]] = []
    failure: Failure | None = None
    for number, case in cases:
        report((number, None))
        expected, actual = expect(number, case), observe(number, case)
        if isinstance(actual, Raised) and is_a_stubs(actual):
            return CheckResult(exercise.id, False, *stub_reached(exercise, actual))
        seen.append((number, case, actual))
        if not exercise.same(expected, actual):
            failure = failure_of(exercise, number, expected, actual)
            report((number, failure))  # the time for naming is not the answer's
            failure = with_suspects(exercise, failure, every_form(exercise), seen, builds)
            break
    begun, waits = time.thread_time(), 0
    for number, case in cases:
        report((number, failure))
        assert failure is not None  # without a failure, the first loop has used all cases
        if (
            not failure.suspects
            or exercise.chancy(case)
            or waits == NARROWING_WAITS
            or time.thread_time() - begun > NARROWING_WORK
        ):
            break
        actual = observe(number, case)
        waits += isinstance(actual, Stuck)
        failure = with_suspects(
            exercise, failure, failure.suspects, [(number, case, actual)], builds
        )
    return verdict_of(exercise, failure)
