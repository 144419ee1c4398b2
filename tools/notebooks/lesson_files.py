"""Reads a lesson from its file in solutions/, which is in jupytext's percent format."""

from pathlib import Path

import jupytext

from lessons_lib.source.lesson import Lesson, SourceError, read_cell


def read_lesson(path: Path) -> Lesson:
    """The lesson in a percent-format source. Raises SourceError, with what is wrong."""
    notebook = jupytext.read(path, fmt="py:percent")
    try:
        lesson = Lesson(
            path.stem, tuple(read_cell(cell, path.stem) for cell in notebook.cells)
        )
        for cell in lesson.cells:
            # An error in a region is raised here, with the file's name.
            cell.student(), cell.solution()
        return lesson
    except SourceError as error:
        raise SourceError(f"{path.name}: {error}") from None
