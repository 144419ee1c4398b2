"""What an exercise is, and how an answer is checked against it.

A check runs the answer and the course's own answer on the same cases, smallest first. If they
differ, each known mistake runs on those cases too. The mistake that gives exactly the same
results as the answer is the one that the learner made.
"""

import contextlib
import importlib
import inspect
import io
import linecache
import re
import time
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lessons_lib import machine
from lessons_lib.compiler_errors import CompileError, without_assertions
from lessons_lib.paths import ROOT, mistakes_folder
from lessons_processes import added_methods, error_line, isolation, one_call

BUILD_TIME_LIMIT = 120.0  # seconds; a build takes 1 to 10
# How much may be spent on telling apart the mistakes that fit a wrong answer: seconds of this
# thread's work, and calls that never came back. Not clock time, so that a busy machine finds
# the same mistake.
NARROWING_WORK = 1.0
NARROWING_WAITS = 2
NAMING_WORK = 5.0  # for trying mistakes that are not recorded
MOST_BUILDS = 3  # of mistakes in C++ and CUDA that are not recorded
NOT_ATTEMPTED = "not-attempted"
NOT_JUDGED = "not-judged"  # this machine cannot try our own answer either
# In a grade our own answers raise "Exercise 2.5 of the course". A learner's stub does not.
OF_THE_COURSE = " of the course"
NO_ANSWER = object()  # what is checked where the learner has left the answer out
# an error as a result: alone, or of one of several calls, and what it has left
ERROR = re.compile(
    r"(?:the call raised |an error, |(?:in|before) step \d+: )?"
    r"((\w+(?:Error|Exception)): (?:(?!; |, and )[^\n])*)"
)
AN_ERROR = "Your code raised"
SHOWN = re.compile(r"^(First|Smallest) case that shows it: ", re.MULTILINE)


class Form:
    """A wrong answer that is kept as a text (lessons_exercises/mistakes.py).

    is_built: whether it is in C++ or CUDA, so that it takes seconds to load.
    is_recorded: whether its results on the visible cases are recorded.
    """

    is_built: bool
    is_recorded: bool

    def load(self):
        """The answer, as a subject for `Exercise.observe`."""
        raise NotImplementedError

    def record(self, number: int) -> tuple[int, Any] | None:
        """Its recorded result on a case, and a number that equal results have in common."""
        return None

    def gives(self, same: Callable[[Any, Any], bool], recorded, actual) -> bool:
        """Whether a recorded result is the `actual` one, or may be in other words."""
        return same(recorded, actual)


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer.

    wrong: a Form, or a subject for `Exercise.observe`, so that its results can be compared
        with the learner's; None for a mistake that `Exercise.recognise` or `name_from_text`
        finds.
    also: further forms of the same mistake that may give different results.
    """

    slug: str
    message: str
    wrong: object
    also: tuple = ()


@dataclass(frozen=True)
class Exercise:
    """One exercise. `observe(subject, case)` gives what a subject does on a case.

    The subject may be the learner's answer, our answer, or a mistake.
    """

    id: str
    title: str
    answer_name: str
    reference: object
    cases: Callable[[], Iterable]
    observe: Callable[[Any, Any], Any]
    # How much a learner has to follow in a case: a number, or several with the most important
    # first. Not used for chancy cases.
    size: Callable[[Any], int | tuple[int, ...]]
    mistakes: Sequence[Mistake]
    hints: tuple[str, ...]
    describe: Callable[[Any], str] = repr
    same: Callable[[Any, Any], bool] = lambda expected, actual: expected == actual
    # How the expected and the actual result look in the message.
    show: Callable[[Any, Any], tuple[str, str]] = lambda expected, actual: (
        repr(expected),
        repr(actual),
    )
    # Whether a race decides this case. Such a case can find a mistake, but not say which one.
    chancy: Callable[[Any], bool] = lambda case: False
    # The slug of a mistake that the answer's text shows by itself, or None. It refuses the
    # answer, so it is only for what no run can show reliably: code that C++ leaves undefined.
    recognise: Callable[[str], str | None] = lambda answer: None
    # The slug of the mistake that the text shows. Only asked after a run has failed.
    name_from_text: Callable[[Any], str | None] = lambda answer: None
    # Whether the text is unchanged, for an exercise that gives a whole text to repair.
    is_given: Callable[[str], bool] = lambda answer: False
    language: str = "python"
    prepare: Callable[[Any], Any] = lambda answer: answer
    points: int = 1
    time_limit: float = 5.0
    # For grades: more cases from a seed, with other shapes and numbers. Learning the known
    # cases by heart does not help.
    hidden: Callable[[int], Iterable] = lambda seed: ()
    # For grades: does in advance everything in a case that needs our own answers. `observe`
    # takes both forms of a case, so our answers need not be present when the learner's runs.
    arrange: Callable[[Any], Any] = lambda case: case

    def in_order(self, cases: Iterable) -> list:
        """The cases in the order in which an answer is tried on them: smallest first.

        So the first case that shows a mistake is also the smallest. Chancy cases come last.
        """
        return sorted(
            cases, key=lambda case: (True,) if self.chancy(case) else (False, self.size(case))
        )


@dataclass(frozen=True)
class CheckResult:
    """The verdict on an answer.

    mistake: None if it passed, a slug from the exercise's bank, "not-attempted", or a general
        outcome: "wrong" (no known mistake explains it), "crashed", "exited", "timed-out",
        "does-not-compile", "not-an-answer", or "not-judged" (the machine's fault).
    """

    exercise: str
    passed: bool
    mistake: str | None
    message: str


@dataclass(frozen=True)
class Failure:
    """The first case on which the answer differs from ours.

    expected, actual: both results as text.
    where: the line that raised, in words, if one did.
    suspects: the mistakes that explain it, each as (slug, form). Form 0 is `wrong`, the forms
        from 1 are `also`.
    """

    case: int
    expected: str
    actual: str
    where: str = ""
    suspects: tuple[tuple[str, int], ...] = ()


class Text(str):
    """A result in words, shown to the learner without quotes."""

    def __repr__(self):
        return str(self)


class Stuck(Text):
    """The result of a call that never comes back, in words, for an exercise that can tell."""


class Raised(Text):
    """The result of a call that raised: "OutOfBlocksError: all 4 blocks are in use".

    where: the learner's line that raised, in words: "line 7: `sequence.lenght += 1`".
    """

    where = ""


CRASH = Raised("the process crashed")
HANG = Raised("no answer within the time limit")


class MistakesError(ValueError):
    """A text of mistakes that cannot be read, with its file and line."""


class NoSuchExercise(KeyError):
    """There is no exercise with this id. A notebook shows one line."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self.args[0]}"]


class NoEnd(BaseException):
    """Raised by the model of a mistake where the mistake itself would never end."""


def find(exercise_id: str) -> Exercise:
    """The exercise with this id. Raises NoSuchExercise if there is none."""
    exercise_id = str(exercise_id)
    is_id = re.fullmatch(r"(0|[1-9]\d?)\.[1-9]\d?", exercise_id)
    if is_id and (names := _modules(*exercise_id.split("."))):
        return importlib.import_module(names[0]).EXERCISE
    known = exercises_of(exercise_id) if is_id else ()
    ids = ", ".join(exercise.id for exercise in known) or "of the form '1.2'"
    ids += "" if known else f", in the lessons {', '.join(lessons())}"
    raise NoSuchExercise(f"There is no exercise {exercise_id!r}; the ids here are {ids}.")


def lessons() -> tuple[str, ...]:
    """The numbers of the lessons that have exercises: "00", "01", …"""
    folders = sorted((ROOT / "lessons_exercises").glob("lesson_[0-9][0-9]"))
    return tuple(folder.name.removeprefix("lesson_") for folder in folders)


def exercises_of(lesson: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson, by its number ("01"), or by an exercise's id ("1.2").

    None for pages without a number, such as "summary".
    """
    lesson = str(lesson).split(".")[0]
    names = _modules(lesson) if re.fullmatch(r"\d\d?", lesson) else []
    return tuple(importlib.import_module(name).EXERCISE for name in names)


def read_mistakes(wanted: Iterable[str]) -> None:
    """Reads a teacher's own mistakes of these lessons, if there are any, to find slips there.

    Raises MistakesError, with file and line, if they cannot be read.
    """
    if folder := mistakes_folder():
        exercises = [exercise for lesson in wanted for exercise in exercises_of(lesson)]
        sizes = [
            (exercise.id, len(getattr(exercise.mistakes, "further", ())))
            for exercise in exercises
        ]
        print(
            f"Further mistakes from {folder}:",
            ", ".join(f"{size} for {id}" for id, size in sizes if size)
            or "none for this lesson",
        )


def _modules(lesson: str, number: str = "*") -> list[str]:
    """The modules of a lesson's exercises, in their order: …lesson_03.e3_2_softmax_state."""
    package = f"lessons_exercises.lesson_{int(lesson):02d}"
    files = ROOT.joinpath(*package.split(".")).glob(f"e{int(lesson)}_{number}_*.py")
    names = sorted((path.stem for path in files), key=lambda name: int(name.split("_")[1]))
    return [f"{package}.{name}" for name in names]


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
    """The verdict, and how the process ended that it comes from."""
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
    """Tries the answer. Once it has failed, there is time for naming its mistake."""
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
    """The lines of the cell that defines the answer, by the name that its code has for it."""
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
    verdict = named_from_text(exercise, answer, _with_printed(outcome.value, outcome.printed))
    tell = getattr(exercise.mistakes, "tell", None)
    return tell(exercise, answer, verdict) if tell else verdict


def refuse(exercise: Exercise, answer) -> CheckResult | None:
    """The verdict that needs no run: not attempted, the wrong type, or refused by its text."""

    def result(mistake, message):
        return CheckResult(exercise.id, False, mistake, message)

    if answer is None or answer is Ellipsis or isinstance(answer, str) and not answer.strip():
        return result(
            NOT_ATTEMPTED,
            f"`{exercise.answer_name}` is still {_short(answer)}. Write it in the cell above.",
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
    got = "nothing" if answer is NO_ANSWER else f"{type(answer).__name__}: {_short(answer)}"
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


def _prepare(exercise_id: str, answer):
    find(exercise_id).prepare(answer)


def _examine(
    exercise_id: str, answer, ended: dict, sources: dict[str, list[str]], report
) -> CheckResult:
    """Runs in the isolated process, and reports each case in advance, in case it is the last.

    ended: results of cases, by number, that crashed an earlier process. They do not run again.
    sources: the lines of the learner's cells, by the name that their code has for them.
    """
    import torch

    torch.set_num_threads(1)  # the tensors are small; threads would mostly wait
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    exercise = find(exercise_id)
    subject = exercise.prepare(answer)

    def attempt_here(number, case):
        return ended.get(number) or one_call.keeping_reserve(
            attempt, exercise, subject, case, otherwise=raised
        )

    def report_printed(about: tuple[int, Failure | None]):
        one_call.keep_printed(about[1] is None)
        report(about, waits=about[1] is not None)  # a failure gives it more time

    verdict = compare(
        exercise,
        lambda number, case: attempt(exercise, exercise.reference, case),
        attempt_here,
        report_printed,
        builds=True,
    )
    if verdict.mistake != "wrong" or ended:
        return verdict
    # It calls the answer again.
    return one_call.keeping_reserve(
        _beside, exercise, subject, verdict, otherwise=lambda error: verdict
    )


def _beside(exercise: Exercise, subject, verdict: CheckResult) -> CheckResult:
    """The verdict on a wrong answer, named by a rule for all exercises if one fits."""
    from lessons_lib import remedies  # imports PyTorch, which the notebook may not need

    def passes(theirs, ours) -> bool:
        return all(
            exercise.same(attempt(exercise, ours, case), attempt(exercise, theirs, case))
            for case in exercise.in_order(exercise.cases())
        )

    slip = remedies.slip(exercise.reference, subject, passes)
    if slip is None and hasattr(exercise.mistakes, "explain"):
        slip = exercise.mistakes.explain(exercise, subject, verdict)
    return _said(verdict, *slip) if slip else verdict


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
        if isinstance(actual, Raised) and _is_a_stubs(actual):
            return CheckResult(exercise.id, False, *_stub_reached(exercise, actual))
        seen.append((number, case, actual))
        if not exercise.same(expected, actual):
            failure = _failure(exercise, number, expected, actual)
            report((number, failure))  # naming is not the answer's time
            failure = _named(exercise, failure, _every_form(exercise), seen, builds)
            break
    begun, waits = time.thread_time(), 0
    for number, case in cases:
        report((number, failure))
        assert failure is not None  # otherwise the first loop has left no cases
        if (
            not failure.suspects
            or exercise.chancy(case)
            or waits == NARROWING_WAITS
            or time.thread_time() - begun > NARROWING_WORK
        ):
            break
        actual = observe(number, case)
        waits += isinstance(actual, Stuck)
        failure = _named(exercise, failure, failure.suspects, [(number, case, actual)], builds)
    return _verdict(exercise, failure)


def _failure(exercise: Exercise, number: int, expected, actual) -> Failure:
    where = actual.where if isinstance(actual, Raised) else ""
    return Failure(number, *_show(exercise, expected, actual), where)


def _named(
    exercise: Exercise, failure: Failure, candidates, seen, builds: bool = False
) -> Failure:
    """The failure with those of the candidates that explain every result."""
    return replace(failure, suspects=_suspects(exercise, candidates, seen, builds))


def _is_a_stubs(raised: Raised) -> bool:
    """Whether a stub raised it. PyTorch raises it too, of what it cannot do."""
    return bool(
        re.fullmatch(r"NotImplementedError(: *Exercise \d+\.\d+\b.*)?", raised.strip(": "))
        or (raised.startswith("NotImplementedError") and "NotImplementedError" in raised.where)
    )


def _stub_reached(exercise: Exercise, raised: Raised) -> tuple[str, str]:
    """The outcome and its message: the answer is a stub, or calls one, or calls ours."""
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


def _every_form(exercise: Exercise) -> tuple[tuple[str, int], ...]:
    return tuple(
        (mistake.slug, form)
        for mistake in exercise.mistakes
        for form in range(1 + len(mistake.also))
    )


def _suspects(
    exercise: Exercise,
    candidates: Iterable[tuple[str, int]],
    seen: list[tuple[int, Any, object]],
    builds: bool = False,
) -> tuple[tuple[str, int], ...]:
    """The (slug, form) pairs in `candidates` that explain every result; those first whose
    records are the same in each word.

    A form is followed through all cases. Those that are not recorded are tried, and what takes
    more than NAMING_WORK or MOST_BUILDS altogether explains nothing. A form that has to be
    built is not tried on further cases than it is recorded on.

    seen: the number of a case, the case, and the answer's result.
    """
    forms = {mistake.slug: (mistake.wrong, *mistake.also) for mistake in exercise.mistakes}
    equal: dict[tuple[int, int], int] = {}  # what a recorded result is to the answer's
    begun, built = time.thread_time(), set[int]()

    def fit(form, number, case, actual) -> int:
        """2 for the same result, 1 for an error in other words, else 0."""
        record = form.record(number) if isinstance(form, Form) else None
        if record is None:
            if isinstance(form, Form) and form.is_built:
                if form.is_recorded or not builds:
                    return 2 * form.is_recorded
                built.add(id(form))
            has_time = time.thread_time() - begun < NAMING_WORK and len(built) <= MOST_BUILDS
            return 2 * (has_time and exercise.same(attempt(exercise, form, case), actual))
        key, recorded = record
        if (number, key) not in equal:
            given = bool(form.gives(exercise.same, recorded, actual))
            equal[number, key] = given + bool(given and exercise.same(recorded, actual))
        return equal[number, key]

    def least_fit(form) -> int:
        least = 2 if form is not None else 0
        for about in seen:
            least = least and min(least, fit(form, *about))
        return least

    with contextlib.redirect_stdout(io.StringIO()):  # a mistake may print too
        fits = [((slug, form), least_fit(forms[slug][form])) for slug, form in candidates]
    return tuple(pair for least in (2, 1) for pair, its in fits if its == least)


def attempt(exercise: Exercise, subject, case):
    """What `subject` does on `case`; an exception is a result like any other."""
    try:
        return exercise.observe(subject.load() if isinstance(subject, Form) else subject, case)
    except NoEnd:
        return HANG
    except SystemExit:
        raise
    except BaseException as error:
        return raised(error)


def raised(error: BaseException) -> Raised:
    """An exception as a result, with the learner's line that it comes from."""
    result = Raised(isolation.describe_error(error))
    result.where = error_line.words_of(error)
    return result


def _verdict(exercise: Exercise, failure: Failure | None) -> CheckResult:
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
    """What has happened where no known mistake explains it."""
    error = ERROR.match(failure.actual)
    if error is None or error[2] in failure.expected:
        return "The result is not right."
    return f"{AN_ERROR} {error[1].rstrip('.')}." + (
        " Is it imported, or defined in a cell that ran?" * (error[2] == "NameError")
    )


def _said(verdict: CheckResult, slug: str, words: str) -> CheckResult:
    # the same case, with other words about it
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
        return _with_printed(
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
        return _with_printed(CheckResult(exercise.id, False, general, words), outcome.printed)
    number, failure = outcome.last_report
    if failure is None:
        failure = _fatal(exercise, number, result)
    else:
        # How the run ended tells the mistakes apart, just as any other result does.
        case = _case(exercise, number)
        failure = _named(exercise, failure, failure.suspects, [(number, case, result)])
    return _with_printed(in_general(_verdict(exercise, failure), outcome), outcome.printed)


def _ending(outcome: isolation.Outcome) -> tuple[str, str, Raised]:
    """How a process ended: the general outcome, words for a learner, its last result."""
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
    return _said(verdict, *_ending(outcome)[:2]) if verdict.mistake == "wrong" else verdict


def _fatal(exercise: Exercise, number: int, result: Raised) -> Failure:
    """The failure of an answer that did not survive case `number`. Until then it was right."""
    cases = exercise.in_order(exercise.cases())[: number + 1]
    expected = [attempt(exercise, exercise.reference, case) for case in cases]
    seen = [*zip(range(len(cases)), cases, [*expected[:-1], result], strict=True)]
    failure = _failure(exercise, number, expected[-1], result)
    return _named(exercise, failure, _every_form(exercise), seen)


def _show(exercise: Exercise, expected, actual) -> tuple[str, str]:
    """Both results as text. The text is the same on every run."""
    try:
        ours, theirs = exercise.show(expected, actual)
        length = 800 if isinstance(actual, Raised) else 300  # an error needs more room
        return _cut(ours, length), _cut(theirs, length)
    except BaseException:
        return _short(expected, 300), _short(actual, 300)


def _short(value, length: int = 80) -> str:
    try:
        return _cut(repr(value), length)
    except BaseException:
        return f"something of type {type(value).__name__} that cannot be shown"


def _cut(text: str, length: int) -> str:
    """The text, shortened and without the memory addresses that Python puts into some."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= length else text[: length - 1] + "…"


def _with_printed(result: CheckResult, printed: str) -> CheckResult:
    if result.passed or not printed.strip():
        return result
    words = without_assertions(printed).rstrip()[:1_000]
    return replace(result, message=f"{result.message}\nYour code printed:\n{words}")
