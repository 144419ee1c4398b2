"""The functions that a lesson calls: `open_lesson`, `check`, `hint`, `solution` and others."""

import importlib.util
import sys
from types import ModuleType

from lessons_lib import checks, installation, rooms
from lessons_lib.checks import progress, saved_answers, solution_cells
from lessons_lib.display import Card, show
from lessons_lib.guide import advice, error_cards, moments, progress_page, restart, show_cells
from lessons_lib.paths import IS_CHECKOUT
from lessons_lib.processes import isolation
from lessons_lib.processes.waiting import waiting

if "ipykernel" in sys.modules:
    isolation.warm_up()  # so that the first check of a notebook need not wait

_hints_shown: dict[str, int] = {}


class CheckFailed(Exception):
    """An answer did not pass. A notebook shows one line; headless runs see an error."""

    def __init__(self, result: checks.CheckResult):
        super().__init__(f"exercise {result.exercise}: {result.mistake}")
        self.result = result

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}"]


class NotAttempted(CheckFailed):
    """The exercise still has its stub."""


class NotJudged(CheckFailed):
    """This machine could not try the answer."""


def open_lesson(lesson: str) -> ModuleType:
    """Shows how far the learner is in a lesson, and returns the module with its pictures.

    lesson: its number, such as "01", or "summary".

    Raises ModuleNotFoundError, with what to do, if a package that lessons need is missing.
    Raises MistakesError, with file and line, if a teacher's own mistakes cannot be read.
    Raises CourseDamaged if files of the course are missing.
    """
    try:
        for name in ("torch", "transformers", "lessons_content"):
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named {name!r}")
        with waiting("Loading what the lesson needs", patience=0.0):
            pictures = rooms.pictures(lesson)
    except ModuleNotFoundError as error:
        start = "make lab" if IS_CHECKOUT else f"{installation.NAME} lab"
        raise ModuleNotFoundError(
            f"{error}. Close this, and open the course with: {start}"
        ) from None
    installation.require()
    show_cells.say_whose_notebook_it_is()
    error_cards.watch(lesson)
    if checks.exercises_of(lesson):
        try:
            checks.read_mistakes([lesson])
        except checks.MistakesError as error:
            raise error from None
        progress_bar(lesson, titles=False)
    return pictures


def check(exercise_id: str, answer: object = checks.NO_ANSWER) -> None:
    """Checks an answer and shows the result.

    answer: the learner's function or class, or the source text of a C++ exercise.
    Raises CheckFailed if the answer is wrong.
    Raises NotAttempted if it is still the stub.
    Raises NotJudged if this machine cannot try our own answer either.
    Raises NoSuchExercise if there is no such exercise.
    Raises CourseDamaged if files of the course are missing.
    """
    exercise = checks.find(exercise_id)
    installation.require()
    with waiting(f"Checking exercise {exercise.id}"):
        result = checks.run(exercise.id, answer)
    name = f"Exercise {exercise.id}, {exercise.title}"
    if result.mistake == checks.NOT_JUDGED:
        show(Card(f"{name}: not judged", result.message))
        raise NotJudged(result)
    attempted = result.mistake != checks.NOT_ATTEMPTED
    counts = solution_cells.are_at_home() or not solution_cells.define(exercise.answer_name)
    is_new = counts and moments.is_new(exercise.id)
    absent = (
        None
        if result.passed
        else restart.missing_in(answer, f"{int(exercise.id.split('.')[0]):02d}")
    )
    is_tried = attempted and counts and not absent
    if is_tried and (result.passed or advice.is_the_learners(answer, exercise)):
        progress.remember(exercise.id, result.passed, result.mistake)
    if result.passed:
        if counts:
            saved_answers.save(exercise.id, answer)
        moments.show_passed(exercise, is_new)
    elif attempted:
        body = advice.after_failing(result, answer)
        show(Card(f"{name}: not yet ({result.mistake})", body, tone="failed"))
        if absent:
            show(absent)
        raise CheckFailed(result)
    else:
        show(Card(f"{name}: {advice.standing(result)}", advice.before_trying(result)))
        raise NotAttempted(result)


def hint(exercise_id: str, number: int | None = None) -> None:
    """Shows the next hint of an exercise, or hint `number` (from 1)."""
    exercise = checks.find(exercise_id)
    count = len(exercise.hints)
    if number is None:
        number = _hints_shown[exercise_id] = _hints_shown.get(exercise_id, 0) + 1
    if not 1 <= number <= count:
        show(
            Card(
                f"Exercise {exercise_id} has hints 1 to {count}, and no other.",
                f'Our own answer: solution("{exercise_id}")',
            )
        )
        return
    show(
        Card(
            f"Hint {number} of {count} for exercise {exercise_id}", exercise.hints[number - 1]
        )
    )


def solution(exercise_id: str) -> None:
    """Shows our own answer to an exercise. It is one right answer of several."""
    show_cells.solution(checks.find(exercise_id))


def progress_bar(lesson: str, titles: bool = True) -> None:
    """Shows which exercises of a lesson ("01") are passed.

    titles: whether each exercise has a line with its title; otherwise one line shows them all.
    """
    show(progress_page.bar(lesson, titles))


def show_progress() -> None:
    """Shows all lessons: which exercises are passed, and which mistakes were met."""
    show(progress_page.page())
