"""The parts of an exercise, and the verdict of a check."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NOT_ATTEMPTED = "not-attempted"
NOT_JUDGED = "not-judged"  # this machine cannot try our own answer either
NO_ANSWER = object()  # the answer if check() is called without one


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
        """Its recorded result on a case, and a number that is the same for equal results."""
        return None

    def gives(self, same: Callable[[Any, Any], bool], recorded, actual) -> bool:
        """Whether a recorded result is the `actual` one; an error may have other words."""
        return same(recorded, actual)


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer.

    wrong: a Form, or a subject for `Exercise.observe`, so that its results can be compared
        with the learner's. None for a mistake that `Exercise.recognise` or `name_from_text`
        finds.
    also: further forms of the same mistake, which may give different results.
    """

    slug: str
    message: str
    wrong: object
    also: tuple = ()


@dataclass(frozen=True)
class Exercise:
    """One exercise. `observe(subject, case)` gives the result of a subject on a case.

    A subject is the learner's answer, our answer, or a mistake.
    """

    id: str
    title: str
    answer_name: str
    reference: object
    cases: Callable[[], Iterable]
    observe: Callable[[Any, Any], Any]
    # How much of a case a learner has to follow: a number, or several with the most important
    # first. It is not used for chancy cases.
    size: Callable[[Any], int | tuple[int, ...]]
    mistakes: Sequence[Mistake]
    hints: tuple[str, ...]
    describe: Callable[[Any], str] = repr
    same: Callable[[Any, Any], bool] = lambda expected, actual: expected == actual
    # The texts of the expected and of the actual result for the message.
    show: Callable[[Any, Any], tuple[str, str]] = lambda expected, actual: (
        repr(expected),
        repr(actual),
    )
    # Whether the result of this case depends on a race. Such a case can show that an answer is
    # wrong, but not name the mistake.
    chancy: Callable[[Any], bool] = lambda case: False
    # The slug of a mistake that the answer's text alone shows, or None. It refuses the answer,
    # so it is only for mistakes that no run shows reliably: code that C++ leaves undefined.
    recognise: Callable[[str], str | None] = lambda answer: None
    # The slug of a mistake that the answer's text shows, asked for only after a run has
    # failed.
    name_from_text: Callable[[Any], str | None] = lambda answer: None
    # Whether the text is unchanged, in an exercise that hands out a whole text to repair.
    is_given: Callable[[str], bool] = lambda answer: False
    language: str = "python"
    prepare: Callable[[Any], Any] = lambda answer: answer
    points: int = 1
    time_limit: float = 5.0
    # For grades: further cases from a seed, with other shapes and numbers. So it does not help
    # to learn the known cases by heart.
    hidden: Callable[[int], Iterable] = lambda seed: ()
    # For grades: computes in advance the parts of a case that need our own answers. `observe`
    # takes a case with these parts and without. So our answers need not be in the process in
    # which the learner's answer runs.
    arrange: Callable[[Any], Any] = lambda case: case

    def in_order(self, cases: Iterable) -> list:
        """The cases in the order in which an answer is tried: smallest first, chancy cases
        last.

        So the first case that shows a mistake is also the smallest.
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
    where: the learner's line that raised, in words; "" if none did.
    suspects: the mistakes that explain the failure, each as (slug, form). Form 0 is `wrong`,
        the forms from 1 on are `also`.
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
    """The result of a call that never returns, in words, for an exercise that can tell."""


class Raised(Text):
    """The result of a call that raised: "OutOfBlocksError: all 4 blocks are in use".

    where: the learner's line that raised, in words: "line 7: `sequence.lenght += 1`".
    """

    where = ""


CRASH = Raised("the process crashed")
HANG = Raised("no answer within the time limit")


class MistakesError(ValueError):
    """A file of mistakes that cannot be read. The text names the file and the line."""


class NoSuchExercise(KeyError):
    """There is no exercise with this id. A notebook shows one line."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self.args[0]}"]


class NoEnd(BaseException):
    """Raised by the model of a mistake where the mistake itself would run forever."""
