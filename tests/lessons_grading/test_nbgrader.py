"""nbgrader's own commands on our notebooks: `make test-all TOOL=nbgrader` installs it and runs
this.
"""

import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from lessons_lib import checks
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS

pytestmark = [
    pytest.mark.tool("nbgrader"),
    pytest.mark.skipif(
        not importlib.util.find_spec("nbgrader"),
        reason="nbgrader is not installed: make test-all TOOL=nbgrader",
    ),
]
LESSONS = sorted(
    path for path in SOLUTIONS.glob("[0-9][0-9]_*.ipynb") if checks.exercises_of(path.name[:2])
)
QUICK = ["00", "06"]
each_lesson = pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem, marks=[] if path.name[:2] in QUICK else pytest.mark.slow
        )
        for path in LESSONS
    ],
)


def nbgrader(folder: Path, *words: str) -> str:
    """What the command prints. Its exit code says whether there was an error."""
    # alembic, which it calls, may be there too
    site = Path(importlib.util.find_spec("nbgrader").origin).parent.parent
    environment = os.environ | {
        "PATH": os.pathsep.join(
            [str(site / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(site),
        "LESSONS_PROGRESS_DIR": str(folder / "progress"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course folder, in which each lesson becomes an assignment when a test asks for it."""
    return tmp_path_factory.mktemp("course")


def release(course: Path, path: Path) -> tuple[Path, Path]:
    """The lesson's notebook as a teacher has it, and as nbgrader releases it."""
    lesson = path.name[:2]
    source, released = (course / kind / lesson / path.name for kind in ("source", "release"))
    if not released.exists():
        source.parent.mkdir(parents=True)
        shutil.copy(path, source)
        nbgrader(course, "generate_assignment", lesson, "--create")
    return source, released


def hand_in(course: Path, student: str, notebook: Path):
    target = course / "submitted" / student / notebook.name[:2]
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(notebook, target / notebook.name)


def score(course: Path, student: str, lesson: str) -> float:
    """Points in nbgrader's own book."""
    with sqlite3.connect(course / "gradebook.db") as book:
        (points,) = book.execute(
            """
            SELECT COALESCE(SUM(COALESCE(grade.manual_score, grade.auto_score)), 0) FROM grade
            JOIN submitted_notebook AS notebook ON grade.notebook_id = notebook.id
            JOIN submitted_assignment AS submitted ON notebook.assignment_id = submitted.id
            JOIN assignment ON submitted.assignment_id = assignment.id
            WHERE submitted.student_id = ? AND assignment.name = ?""",
            (student, lesson),
        ).fetchone()
    return points


@each_lesson
def test_a_release_is_the_notebook_without_its_solutions(course, path):
    released = nbformat.read(release(course, path)[1], as_version=4)
    ours = nbformat.read(NOTEBOOKS / path.name, as_version=4)
    assert len(released.cells) == len(ours.cells)
    for cell, own in zip(released.cells, ours.cells, strict=True):
        assert "SOLUTION" not in cell.source and not cell.get("outputs")
        if "exercise" not in cell.metadata:
            assert cell.source == own.source
        else:
            assert "raise NotImplementedError()" in cell.source


def test_the_hunt_is_released_with_its_faults(course):
    def hunted(path):
        cells = nbformat.read(path, as_version=4).cells
        return next(cell.source for cell in cells if cell.metadata.get("exercise") == "6.8")

    name = "06_cuda_kernel.ipynb"
    given = hunted(NOTEBOOKS / name).strip()
    assert hunted(release(course, SOLUTIONS / name)[1]).startswith(given)


@each_lesson
def test_validate_says_whether_a_notebook_passes(course, path):
    solved, released = release(course, path)
    assert "Success! Your notebook passes all the tests." in nbgrader(
        course, "validate", str(solved)
    )
    assert "VALIDATION FAILED" in nbgrader(course, "validate", str(released)).upper()


@each_lesson
def test_autograde_gives_the_points_that_were_earned(course, path):
    """For three learners: one has solved all, one only the first exercise, one nothing."""
    lesson = path.name[:2]
    solved, released = release(course, path)
    exercises = checks.exercises_of(lesson)
    hand_in(course, "all", solved)
    hand_in(course, "nothing", released)
    notebook = json.loads(released.read_text())
    right = json.loads(solved.read_text())
    for cell, answer in zip(notebook["cells"], right["cells"], strict=True):
        if cell["metadata"].get("exercise") == exercises[0].id:
            cell["source"] = answer["source"]
    first = course / "first" / released.name
    first.parent.mkdir(exist_ok=True)
    first.write_text(json.dumps(notebook))
    hand_in(course, "first", first)
    nbgrader(course, "autograde", lesson, "--create")
    total = sum(exercise.points for exercise in exercises)
    assert [score(course, student, lesson) for student in ("all", "first", "nothing")] == [
        total,
        exercises[0].points,
        0,
    ]
