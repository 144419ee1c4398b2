"""The verdict on an answer in words, for the learner."""

import inspect
import re
import types
from dataclasses import replace

from lessons_lib.checks.naming import (
    attempt,
    every_form,
    failure_of,
    short,
    with_suspects,
)
from lessons_lib.checks.types import (
    CRASH,
    HANG,
    NO_ANSWER,
    NOT_ATTEMPTED,
    CheckResult,
    Exercise,
    Failure,
    MistakesError,
    Raised,
)
from lessons_lib.cuda.compiler_errors import CompileError, without_assertions
from lessons_lib.processes import isolation

# In a grade, our own answers raise "Exercise 2.5 of the course". A learner's stub does not.
OF_THE_COURSE = " of the course"
# The result of a call that raised, or of one of several calls, with the state after it.
ERROR = re.compile(
    r"(?:the call raised |an error, |(?:in|before) step \d+: )?"
    r"((\w+(?:Error|Exception)): (?:(?!; |, and )[^\n])*)"
)
AN_ERROR = "Your code raised"
SHOWN = re.compile(r"^(First|Smallest) case that shows it: ", re.MULTILINE)


def refuse(exercise: Exercise, answer) -> CheckResult | None:
    """The verdict that needs no run: not attempted, the wrong type, or refused by its text."""

    def result(mistake, message):
        return CheckResult(exercise.id, False, mistake, message)

    if answer is None or answer is Ellipsis or isinstance(answer, str) and not answer.strip():
        return result(
            NOT_ATTEMPTED,
            f"`{exercise.answer_name}` is still {short(answer)}. Write it in the cell above.",
        )
    if exercise.language == "python":
        if not callable(answer) or isinstance(answer, types.ModuleType):
            return _not_an_answer(exercise, answer)
        return None
    if not isinstance(answer, str) or answer.isidentifier():
        return _not_an_answer(exercise, answer)
    for number, line in enumerate(answer.split("\n"), 1):
        ours = re.match(rf'\s*(throw|#error)\b.*"Exercise {re.escape(exercise.id)}\b', line)
        if ours or line.strip() == "raise NotImplementedError()":  # nbgrader's stub
            return result(
                NOT_ATTEMPTED,
                f"Line {number} of `{exercise.answer_name}` is still the stub: {line.strip()}",
            )
    if exercise.is_given(answer):
        return result(
            NOT_ATTEMPTED, f"`{exercise.answer_name}` is still the text that you were given."
        )
    if slug := exercise.recognise(answer):
        return result(
            slug,
            next(mistake.message for mistake in exercise.mistakes if mistake.slug == slug),
        )
    return None


def _not_an_answer(exercise: Exercise, answer) -> CheckResult:
    name, is_python = exercise.answer_name, exercise.language == "python"
    in_python = "the class" if inspect.isclass(exercise.reference) else "the function"
    kind = in_python if is_python else "C++ source text, the string"
    got = "nothing" if answer is NO_ANSWER else f"{type(answer).__name__}: {short(answer)}"
    return CheckResult(
        exercise.id,
        False,
        "not-an-answer",
        f"check({exercise.id!r}, …) expects "
        f"{kind} `{name}`, and got {got}\n"
        f'Write it like this: `check("{exercise.id}", {name})`, with nothing around the name.',
    )


def named_from_text(exercise: Exercise, answer, result: CheckResult) -> CheckResult:
    """The result, with the mistake that the text shows if the answer failed on a case."""
    shown = SHOWN.search(result.message)
    slug = exercise.name_from_text(answer) if shown else None
    if shown is None or slug is None:
        return result
    message = next(mistake.message for mistake in exercise.mistakes if mistake.slug == slug)
    return replace(
        result, mistake=slug, message=f"{message}\n{result.message[shown.start() :]}"
    )


def not_sendable(exercise: Exercise, error: TypeError) -> CheckResult:
    return CheckResult(
        exercise.id,
        False,
        "not-an-answer",
        f"{error}\nYour answer uses an object of the notebook "
        "(a compiled manager, a lock, an open file) where it should use its arguments.",
    )


def is_a_stubs(raised: Raised) -> bool:
    """Whether a stub raised this error.

    PyTorch raises it too, for operations that it lacks.
    """
    return bool(
        re.fullmatch(r"NotImplementedError(: *Exercise \d+\.\d+\b.*)?", raised.strip(": "))
        or (raised.startswith("NotImplementedError") and "NotImplementedError" in raised.where)
    )


def stub_reached(exercise: Exercise, raised: Raised) -> tuple[str, str]:
    """The outcome and its message: the answer is still the stub, or it calls another
    exercise's stub or our own answer.
    """
    named = re.search(rf"\bExercise (\d+\.\d+)({OF_THE_COURSE})?", raised)
    if named and named[2]:
        ours = f"It calls the course's own answer to exercise {named[1]}"
        return "missing", (
            f"{ours}, which is not there when answers are graded. "
            "It may call whatever your notebook defines."
        )
    if named and named[1] != exercise.id:
        return NOT_ATTEMPTED, f"It calls exercise {named[1]}, which is still the stub."
    return NOT_ATTEMPTED, (
        f"A part of `{exercise.answer_name}` is still the stub, in {raised.where}."
        if inspect.isclass(exercise.reference) and raised.where
        else f"`{exercise.answer_name}` is still the stub."
    )


def verdict_of(exercise: Exercise, failure: Failure | None) -> CheckResult:
    if failure is None:
        return CheckResult(exercise.id, True, None, "")
    case = _case(exercise, failure.case)
    which = "First" if exercise.chancy(case) else "Smallest"
    shown = (
        f"{which} case that shows it: {exercise.describe(case)}\n"
        f"  expected: {failure.expected}\n  got:      {failure.actual}"
    )
    if failure.where:
        shown += f"\n  raised in {failure.where}"
    if failure.suspects:
        slug, _ = failure.suspects[0]
        mistake = next(mistake for mistake in exercise.mistakes if mistake.slug == slug)
        return CheckResult(exercise.id, False, mistake.slug, f"{mistake.message}\n{shown}")
    return CheckResult(exercise.id, False, "wrong", f"{_unnamed(failure)}\n{shown}")


def _unnamed(failure: Failure) -> str:
    """Says what happened if no known mistake explains the failure."""
    error = ERROR.match(failure.actual)
    if error is None or error[2] in failure.expected:
        return "The result is not right."
    return f"{AN_ERROR} {error[1].rstrip('.')}." + (
        " Is it imported, or defined in a cell that ran?" * (error[2] == "NameError")
    )


def said_as(verdict: CheckResult, slug: str, words: str) -> CheckResult:
    # The message keeps its lines about the case.
    return replace(
        verdict, mistake=slug, message="\n".join([words, *verdict.message.split("\n")[1:]])
    )


def _case(exercise: Exercise, number: int):
    return exercise.in_order(exercise.cases())[number]


def from_broken_run(exercise: Exercise, outcome: isolation.Outcome) -> CheckResult:
    """The verdict on an answer that was not built, or whose process ended early.

    Raises MistakesError for a teacher's file that cannot be read.
    """
    if isinstance(outcome.error, MistakesError):
        raise outcome.error from None
    if isinstance(outcome.error, CompileError):
        return CheckResult(
            exercise.id, False, "does-not-compile", f"It could not be built.\n{outcome.error}"
        )
    if outcome.error is not None:
        return with_printed(
            CheckResult(
                exercise.id,
                False,
                "wrong",
                f"It raised while it was loaded: {isolation.describe_error(outcome.error)}",
            ),
            outcome.printed,
        )
    general, words, result = _ending(outcome)
    if outcome.last_report is None:
        return with_printed(CheckResult(exercise.id, False, general, words), outcome.printed)
    number, failure = outcome.last_report
    if failure is None:
        failure = _fatal(exercise, number, result)
    else:
        # The way in which the run ended tells mistakes apart, as any other result does.
        case = _case(exercise, number)
        failure = with_suspects(exercise, failure, failure.suspects, [(number, case, result)])
    return with_printed(in_general(verdict_of(exercise, failure), outcome), outcome.printed)


def _ending(outcome: isolation.Outcome) -> tuple[str, str, Raised]:
    """How a process ended: the outcome's slug, words for the learner, its case's result."""
    return {
        "crashed": ("crashed", f"Your code crashed its process ({outcome.detail}).", CRASH),
        "exited": (
            "exited",
            (
                f"Your code ended its process ({outcome.detail}). "
                "An answer returns; it does not exit."
            ),
            Raised(f"the process ended, {outcome.detail}"),
        ),
        "timed out": (
            "timed-out",
            f"Your code did not come to an end within {outcome.detail}.",
            HANG,
        ),
    }[outcome.ending]


def in_general(verdict: CheckResult, outcome: isolation.Outcome) -> CheckResult:
    """The verdict, named after the way the process ended if no mistake explains it."""
    return said_as(verdict, *_ending(outcome)[:2]) if verdict.mistake == "wrong" else verdict


def _fatal(exercise: Exercise, number: int, result: Raised) -> Failure:
    """The failure of an answer that was right until case `number` ended its process."""
    cases = exercise.in_order(exercise.cases())[: number + 1]
    expected = [attempt(exercise, exercise.reference, case) for case in cases]
    seen = [*zip(range(len(cases)), cases, [*expected[:-1], result], strict=True)]
    failure = failure_of(exercise, number, expected[-1], result)
    return with_suspects(exercise, failure, every_form(exercise), seen)


def with_printed(result: CheckResult, printed: str) -> CheckResult:
    if result.passed or not printed.strip():
        return result
    words = without_assertions(printed).rstrip()[:1_000]
    return replace(result, message=f"{result.message}\nYour code printed:\n{words}")
