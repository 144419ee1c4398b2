"""The hidden exam of an exercise. The results are compared here, where no answer ever runs."""

import base64
import functools
import json
from dataclasses import dataclass, replace

from lessons_grading import course
from lessons_grading.grades import NEW_CASE
from lessons_grading.sandbox import Run
from lessons_grading.sandbox_messages import Case, Ready, Refused
from lessons_grading.work import LARGEST_EFFORT, Effort
from lessons_lib import checks
from lessons_lib.checks import CheckResult, Exercise, result_codec
from lessons_lib.processes import isolation

MOST_PARTS = 200_000  # of a result; each becomes an object, many times its text
NOT_SHOWN = "The result is not right. It is of a kind that cannot be compared or shown."
TOO_MUCH_EFFORT = f"Its results took us more than {LARGEST_EFFORT:g} s to compare."


@dataclass(frozen=True)
class Exam:
    """An exercise with our results. Its hidden cases follow the visible ones.

    Both are ordered by size. So a message shows the smallest visible case that fails, or the
    smallest hidden one if all visible ones pass.
    num_visible: how many cases are visible.
    by_chance: the numbers of the cases that a race decides.
    packed: the exercise and its cases, for the sandbox.
    """

    exercise: Exercise
    num_visible: int
    expected: tuple
    by_chance: frozenset[int]
    packed: str


@functools.lru_cache(maxsize=100)
def exam_of(exercise_id: str, seed: int) -> Exam:
    exercise = checks.find(exercise_id)
    visible = exercise.in_order(exercise.cases())
    hidden = exercise.in_order(exercise.hidden(seed))
    cases = (*visible, *hidden)
    expected = tuple(checks.attempt(exercise, exercise.reference, case) for case in cases)

    def chancy(case):  # names a mistake as the notebook's check would
        return exercise.chancy(case) or any(case is each for each in hidden)

    same = functools.partial(_same, exercise.same)
    # their order stays: chancy cases come last
    exam = replace(exercise, cases=lambda: cases, same=same, chancy=chancy)
    by_chance = frozenset(number for number, case in enumerate(cases) if exercise.chancy(case))
    return Exam(
        exam,
        len(visible),
        expected,
        by_chance,
        base64.b64encode(course.pack(exercise, cases)).decode(),
    )


def _same(same, expected, actual) -> bool:
    """Whether they are the same. Results that cannot even be compared are different."""
    try:
        return bool(same(expected, actual))
    except Exception:
        return False


class _Ended(Exception):
    """The answer's run ended before it gave a result."""


def compare(
    exam: Exam, run: Run, ended: dict, effort: Effort, seconds: float
) -> tuple[CheckResult, isolation.Outcome]:
    """The verdict on the results of a run of `worker.observe`, and how the run ended.

    ended: the results of cases, by number, that the run leaves out.
    seconds: that the run may take for all cases once its answer is built.
    """
    is_ready = exam.exercise.language == "python"  # else it is built first
    last, refused, outcome = (0, None), None, isolation.Outcome("returned")

    def note(report):
        nonlocal last
        last = report

    def attempt(number, case):
        nonlocal is_ready, refused
        if number in ended:
            return ended[number]
        limit = None
        # a case that helps little arrives, but is not compared
        while (report := run.next(limit)) is not None:
            limit = None
            match report:
                case Ready() if not is_ready:  # once, whatever an answer forges
                    is_ready, limit = True, seconds
                case Case(n, text) if n == number and not effort.is_too_much():
                    return decode(text)
                case Refused():
                    refused = refused or refusal(exam.exercise, report)
        raise _Ended

    try:
        with effort:
            verdict = checks.compare(
                exam.exercise, lambda number, case: exam.expected[number], attempt, note
            )
    except _Ended:
        if effort.is_too_much():
            return CheckResult(exam.exercise.id, False, "wrong", TOO_MUCH_EFFORT), outcome
        if refused:
            return refused, outcome
        outcome = replace(run.outcome, last_report=last if is_ready else None)
        verdict = broken(exam.exercise, outcome)
    except Exception:  # a forged result, of which the exercise cannot make words
        return CheckResult(exam.exercise.id, False, "wrong", NOT_SHOWN), outcome
    number, failure = last
    shown = failure.case if failure else number
    if not verdict.passed and shown >= exam.num_visible:
        message = verdict.message
        if shown not in exam.by_chance:  # hidden cases are ordered by size too
            message = message.replace(
                "First case that shows it: ", "Smallest case that shows it: ", 1
            )
        verdict = replace(verdict, message=f"{NEW_CASE}\n{message}")
    return verdict, outcome


def broken(exercise: Exercise, outcome: isolation.Outcome) -> CheckResult:
    """The verdict on an answer whose run gave too few results."""
    # it claims to have returned
    if outcome.ending not in ("crashed", "exited", "timed out") and not outcome.error:
        outcome = replace(outcome, ending="exited", detail="without a result")
    return checks.from_broken_run(exercise, outcome)


def decode(text: str):
    try:
        if sum(map(text.count, "[{,")) > MOST_PARTS:
            raise ValueError("it has too many parts")
        return result_codec.decode(json.loads(text))
    except Exception:
        return result_codec.Foreign("something that cannot be read")


def refusal(exercise: Exercise, refused: Refused) -> CheckResult:
    """The verdict on an answer that the sandbox did not try. It can only harm the answer."""
    known = {
        checks.NOT_ATTEMPTED,
        "not-an-answer",
        "missing",
        *(mistake.slug for mistake in exercise.mistakes),
    }
    slug = refused.mistake if refused.mistake in known else "wrong"
    return CheckResult(exercise.id, False, slug, refused.message)
