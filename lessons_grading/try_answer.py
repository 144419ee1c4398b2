"""Tries an answer in the sandbox, on the cases of its check and on hidden ones."""

import functools
import hashlib
from collections import OrderedDict
from contextlib import closing
from typing import NamedTuple

import msgspec

from lessons_grading import course
from lessons_grading.grades import NEW_CASE
from lessons_grading.hidden_cases import TOO_MUCH_EFFORT, compare, exam_of, refusal
from lessons_grading.sandbox import LARGEST_SUM
from lessons_grading.sandbox_messages import Packed, Refused
from lessons_grading.work import Work, is_refused
from lessons_lib import checks, machine
from lessons_lib.checks import CheckResult, Exercise
from lessons_lib.processes import isolation

RUN_FACTOR = 2  # there are about as many hidden cases as visible ones
MOST_KNOWN = 2_000  # verdicts that a process remembers, the last ones that it needed
SEEN_IN_PYTHON, SEEN_BUILT = 5, 2  # times that an answer comes before its verdict is kept
LARGEST_KNOWN = 10_000  # characters of a verdict's message
LARGEST_READ = 10_000  # characters of an answer: a pattern takes under a second for as many


class MachineFault(RuntimeError):
    """This machine cannot try our own answer either. Says what to do."""


class _Known(NamedTuple):
    """A verdict, and what it has cost: the same answer costs the next one the same."""

    verdict: CheckResult
    bytes: int
    effort: float


# By answer: its verdict, or how often it was seen so far. None if nothing is remembered.
_known: OrderedDict[tuple, _Known | int] | None = None


def remember_answers():
    """From now on, this process tries no answer more than a few times.

    An answer is the same if its text in C++ or CUDA is; in Python if its code is, with the
    helpers, values and files that it uses. So it does not matter that cells depend on each
    other.

    A student's cells may have left something in their sandbox that helps their answer. So the
    verdict of a trial there is not kept. An answer that comes again is tried in a sandbox in
    which no cell of that student ran, and that verdict counts from then on. To start such a
    sandbox takes longer than most trials in Python, so these have to come more often.
    """
    global _known
    _known = OrderedDict()


def examine(work: Work, exercise: Exercise, answer: Packed) -> CheckResult:
    """Like `checks.run`, but in the sandbox and with the hidden cases."""
    if is_refused(answer):
        return refusal(exercise, Refused(*answer["refused"]))
    if reason := _too_much(work):
        return CheckResult(exercise.id, False, "wrong", f"This was not tried: {reason}.")
    if work.effort.is_too_much():
        return CheckResult(exercise.id, False, "wrong", TOO_MUCH_EFFORT)
    if _known is None:
        return _try(work, exercise, answer)
    whole = msgspec.json.encode((answer, work.notebook.files))
    key = exercise.id, hashlib.sha256(whole).hexdigest(), work.seed, work.limits
    known = _known.get(key, 0)
    if isinstance(known, _Known):
        _known.move_to_end(key)
        work.repeated += 1
        work.taken.bytes += known.bytes
        work.effort.add(known.effort)
        return known.verdict
    is_again = known + 1 >= (SEEN_IN_PYTHON if exercise.language == "python" else SEEN_BUILT)
    bytes_before, effort_before = work.taken.bytes, work.effort.seconds
    verdict = _try(work, exercise, answer, apart=is_again)
    work.leave_apart()
    cost = work.taken.bytes - bytes_before, work.effort.seconds - effort_before
    is_certain = not (work.from_outside or _too_much(work) or work.effort.is_too_much())
    if is_certain and len(verdict.message) <= LARGEST_KNOWN:
        _known[key] = _Known(verdict, *cost) if is_again else known + 1
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return verdict


def _too_much(work: Work) -> str:
    """Why no more is tried, or ""."""
    if work.taken.is_too_much():
        work.note(words := f"it reported more than {LARGEST_SUM >> 20} MB")
        return words
    return "the time by the clock was over" if work.is_over() else ""


def _try(work: Work, exercise: Exercise, answer: Packed, apart: bool = False) -> CheckResult:
    """The verdict. Raises MachineFault if this machine cannot build our own answer either."""
    work.tried += 1
    verdict, outcome = _attempt(work, exercise, answer, apart)
    is_built = exercise.language != "python" and not work.from_outside
    if is_built and not verdict.passed and machine.may_be_at_fault(outcome, verdict.message):

        def try_ours(text: str) -> str:
            return _try_beside(work, exercise, {"text": text}).message

        if fault := machine.fault(exercise.id, try_ours, work.limits):
            raise MachineFault(f"exercise {exercise.id}: {fault}")
    text = answer.get("text", "")
    if verdict.passed or not text or len(text) > LARGEST_READ or NEW_CASE in verdict.message:
        return verdict
    return checks.named_from_text(exercise, text, verdict)


def _try_beside(work: Work, exercise: Exercise, ours: Packed) -> CheckResult:
    """The verdict on our own answer, in a sandbox that no submission gets to see."""
    with closing(Work(work.notebook, work.exercises, work.seed, work.limits)) as alone:
        verdict, _ = _attempt(alone, exercise, ours)
    if alone.from_outside:  # that is not to be remembered
        raise MachineFault("this machine was too busy to try our own answer")
    return verdict


def _attempt(
    work: Work, exercise: Exercise, answer: Packed, apart: bool = False
) -> tuple[CheckResult, isolation.Outcome]:
    """The verdict, and how the run has ended that gave it."""
    verdict, outcome = _observe(work, exercise, answer, {}, apart)
    if checks.crashed_first(outcome):  # the cases after that one are worth a try
        ended = {outcome.last_report[0]: checks.CRASH}
        again, _ = _observe(work, exercise, answer, ended, apart)
        verdict = checks.in_general(again, outcome)
    return verdict, outcome


def _observe(
    work: Work, exercise: Exercise, answer: Packed, ended: dict, apart: bool
) -> tuple[CheckResult, isolation.Outcome]:
    exam = exam_of(exercise.id, work.seed)
    is_built = exercise.language != "python"
    seconds = RUN_FACTOR * exercise.time_limit
    run = work.run(
        "observe",
        exam.packed,
        answer,
        work.notebook.files,
        [*ended],
        files=_files(exercise.id),
        seconds=checks.BUILD_TIME_LIMIT if is_built else seconds,
        clean=not (is_built and ended),  # else it would be built again
        apart=apart,
    )
    try:
        return compare(exam, run, ended, work.effort, seconds)
    finally:
        work.stop(run)


@functools.lru_cache(maxsize=100)
def _files(exercise_id: str) -> dict[str, str]:
    return course.without_answers(checks.find(exercise_id))
