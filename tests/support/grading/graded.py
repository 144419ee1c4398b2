"""Submissions for the tests of the grader: notebooks made of a few cells, and the limits that
they run under.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from lessons_grading import sandbox
from lessons_grading.judge import grade_notebook
from lessons_grading.notebook import read_notebook
from lessons_grading.sandbox import Limits
from lessons_lib.paths import SOLUTIONS
from tools.notebooks.lesson_files import read_lesson

# In CI nothing of this is skipped by accident: there it fails.
needs_sandbox = pytest.mark.skipif(
    sandbox.missing() is not None and "CI" not in os.environ,
    reason="there is no bubblewrap that works",
)
QUICK = Limits(cell_seconds=3.0, notebook_seconds=900.0, memory=3 << 30)
SEED = 7
RIGHT = "def blocks_needed(num_tokens, block_size):\n    return -(-num_tokens // block_size)"
WRONG = "def blocks_needed(num_tokens, block_size):\n    return num_tokens // block_size"


def hand_in(folder: Path, *sources: str, name: str = "00_start_here.ipynb") -> Path:
    """A notebook of these code cells."""
    cells = [
        {
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for source in sources
    ]
    path = folder / name
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return path


def grade(path: Path, limits: Limits = QUICK, student: str = "ada"):
    return grade_notebook(read_notebook(path, student), path.name, student, SEED, limits)


def passed(grade) -> dict[str, bool]:
    return {each.exercise: each.passed for each in grade.exercises}


def earned(grade) -> int:
    return sum(each.earned for each in grade.exercises)


def mistakes(grade) -> dict[str, str | None]:
    return {each.exercise: each.mistake for each in grade.exercises}


def open_files() -> set[str]:
    """What this process has open. Each pipe has a name of its own, which none gets again.

    A sandbox's watcher may read /proc, after its end too.
    """
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the folder itself
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {name for name in found if not name.startswith("/proc")}


def solution_of(exercise_id: str) -> str:
    """The text of our answer's cell."""
    (path,) = SOLUTIONS.glob(f"{int(exercise_id.split('.')[0]):02d}_*.py")
    return next(
        cell.solution()
        for cell in read_lesson(path).cells
        if cell.kind == "exercise" and cell.exercise == exercise_id
    )


def a_few(cases: dict, *names: str) -> list:
    """Parameters of a test: these, and all others only among the slow ones."""
    assert set(names) <= set(cases)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=[] if name in names else [pytest.mark.slow],
        )
        for name, case in cases.items()
    ]
