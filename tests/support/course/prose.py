"""What the lessons say."""

import re

from lessons_lib.paths import SOLUTIONS
from tools.notebooks.lesson_files import read_lesson


def prose(lesson: str) -> str:
    """The text of a lesson, each paragraph in one line."""
    (path,) = SOLUTIONS.glob(f"{lesson}*.py")
    return re.sub(
        r"\s+",
        " ",
        " ".join(cell.source for cell in read_lesson(path).cells if cell.kind == "markdown"),
    )
