"""Explains a cell that Python cannot read, and a cell that needs an answer not yet written."""

import re

from lessons_lib import checks
from lessons_lib.display import Card
from lessons_lib.guide import restart, show_cells
from lessons_lib.guide.advice import RUN_IT

_STUB = re.compile(r"Exercise (\d+\.\d+)( is not written yet)?")
_CPP = re.compile(
    r"^\s*#\s*include\b|\bstd::|^\s*(class|struct)\s+\w+\s*(:[^:]*)?\{|;\s*$|^\s*//",
    re.MULTILINE,
)

_NOT_SO = Card(
    "What this cell expects of your answers is not so",
    "Run the checks of the exercises above once more: one of them says why. If all pass, an "
    "older answer is still in use. Run ▸ Run All Above Selected Cell brings it up to date.",
)


def explain(error: Exception, running: str, lesson: str | None) -> Card | None:
    """Says what to do after the error; None if there is nothing to say.

    running: the text of the cell that raised the error.
    lesson: its number, if it is known.
    """
    if isinstance(error, SyntaxError):
        return _not_python(running, lesson)
    if isinstance(error, AssertionError):
        # the lesson's own message, which explains the error already
        is_told = bool(str(error)) and "not close" not in str(error)
        return None if is_told or not restart.is_a_lessons(running, lesson) else _NOT_SO
    if isinstance(error, TypeError):
        return _called_in_a_check(running)
    found = _STUB.fullmatch(str(error))
    return _not_written(found[1]) if found else None


def _called_in_a_check(running: str) -> Card | None:
    found = re.search(r"""\bcheck\((["']\d+\.\d+["'], *\w+)\(""", running)
    if not found:
        return None
    return Card(
        "A check calls your answer itself",
        f"Write `check({found[1]})`, with nothing after the name.",
    )


def _not_written(exercise: str) -> Card:
    return Card(
        f"Exercise {exercise} is not written yet, and this cell needs it",
        f"Write the answer into the cell of exercise {exercise} and {RUN_IT}. "
        "Then run this one again.",
    )


def _not_python(running: str, lesson: str | None) -> Card:
    exercise = _exercise_of(running, lesson)
    title = "Python cannot read this cell, so nothing of it has run"
    if running.count('"""') % 2:
        title = 'A text in this cell has only one of its two """'
        body = 'It begins with """ and ends with """. One of the two is missing.'
        if exercise and exercise.language != "python":
            body = _frame(exercise)
    elif '"""' not in running and _CPP.search(running):
        title = "This looks like C++, and the cell is Python"
        body = _frame(exercise) if exercise else 'C++ goes into a Python text: r""" … """.'
    else:
        body = (
            "The fault is at the mark ^, or a little before it. Often a bracket, a quote or a "
            "colon is missing, or a line is not as far to the right as its neighbours."
        )
    if exercise:
        body += (
            f"\nUntil the cell runs, a check sees your answer from before. "
            f"The cell as you were given it:\n"
            f'  from lessons_lib.guide.show_cells import stub; stub("{exercise.id}")'
        )
    return Card(title, body)


def _frame(exercise: checks.Exercise) -> str:
    """The lines around an answer in C++ or CUDA, to show where its text belongs."""
    return (
        f"The text of exercise {exercise.id} is between two lines of Python: it begins after "
        f'`{exercise.answer_name} = r"""` and ends before a line with """ alone.'
    )


def _exercise_of(running: str, lesson: str | None) -> checks.Exercise | None:
    """The exercise that the cell answers, by the names that it defines."""
    exercises = checks.exercises_of(lesson or "")
    for exercise in exercises:
        name = re.escape(exercise.answer_name)
        if re.search(rf"^(def |class )?{name}\b\s*[(:=]", running, re.MULTILINE):
            return exercise
    classes = re.findall(r"^class (\w+)", running, re.MULTILINE)
    for exercise in exercises:
        if exercise.language != "python" and any(
            re.search(rf"\bclass {name}\b", show_cells.our_answer(exercise))
            for name in classes
        ):
            return exercise
    return None
