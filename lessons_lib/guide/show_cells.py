"""Shows an exercise's cell as it was handed out, or our answer to it."""

import os
from pathlib import Path

from lessons_lib import checks, installation, rooms
from lessons_lib.display import Card, show
from lessons_lib.guide import handed_out
from lessons_lib.paths import IS_CHECKOUT, NOTEBOOKS, SOLUTIONS


def stub(exercise_id: str) -> None:
    """Shows the cell of an exercise as it was handed out, even if somebody has changed the
    course's own notebook. It changes no notebook.

    Raises NoSuchExercise if there is no such exercise.
    """
    exercise = checks.find(exercise_id)
    title = f"Exercise {exercise.id} as you were given it"
    try:
        show(Card(title, _code(_cell(exercise, NOTEBOOKS) or "It is not here.")))
    except handed_out.Changed as problem:
        show(Card(f"Exercise {exercise.id} is not here as you were given it", str(problem)))


def say_whose_notebook_it_is() -> None:
    """Warns in one line if this is not the notebook to work in: it is the course's own, as an
    editor may open it by itself, or a new version of it is beside it. On a hub only a log,
    which the learner does not see, tells of the new version.
    """
    if handed_out.is_here():
        start = "make lab OPEN=no" if IS_CHECKOUT else f"{installation.NAME} lab"
        show(Card(f"This is the course's own copy. Work in yours: `{start}` makes it."))
    elif new := _newer_version():
        show(Card(f"A new version of this notebook, with your answers, is beside it: {new}"))


def _newer_version() -> str:
    """The new version's file name.

    "" if there is none, or the kernel's notebook is unknown.
    """
    name = Path(os.environ.get("JPY_SESSION_NAME", "")).name
    if not name or not (NOTEBOOKS / name).is_file():
        return ""
    try:
        new = handed_out.name_of_new(
            name, handed_out.digest(handed_out.read(NOTEBOOKS / name))
        )
    except (OSError, handed_out.Changed):
        return ""
    return new if Path(new).is_file() else ""


def solution(exercise: checks.Exercise) -> None:
    """Shows our answer, with its whole cell if the solution notebook is here."""
    source = _cell(exercise, SOLUTIONS) or our_answer(exercise)
    lines = [line for line in source.split("\n") if "SOLUTION" not in line]
    show(Card(f"One answer to exercise {exercise.id}", _code("\n".join(lines))))


def our_answer(exercise: checks.Exercise) -> str:
    """The text of our answer without the rest of its cell."""
    return rooms.load("our answers").our_answers()[exercise.id]


def _cell(exercise: checks.Exercise, notebooks: Path) -> str | None:
    """The exercise's cell in a folder of notebooks, if it is there."""
    lesson = int(exercise.id.split(".")[0])
    for notebook in sorted(notebooks.glob(f"{lesson:02d}_*.ipynb")):
        for cell in handed_out.read(notebook)["cells"]:
            if cell["metadata"].get("exercise") == exercise.id:
                return "".join(cell["source"])
    return None


def _code(source: str) -> str:
    """The text with two spaces before each line, so that a card shows it as code."""
    return "\n".join(f"  {line}" for line in source.split("\n"))
