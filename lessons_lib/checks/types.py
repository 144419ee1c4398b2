"""What an exercise is, and what a check says of an answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NOT_ATTEMPTED = "not-attempted"
NOT_JUDGED = "not-judged"  # this machine cannot try our own answer either
NO_ANSWER = object()  # what is checked where the learner has left the answer out


class Form:
    """A wrong answer that is kept as a text (lessons_content/mistakes/bank.py).

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
