"""Grades one submission. Its cells run in a sandbox; its results are compared with ours here.

No code of a submission ever runs in this process. Nothing that it prints, patches or returns
can say that it has passed. Its answers are tried in the sandbox, on the check's cases and on
hidden ones, and only the results come out, as data. They have to be right. The course's own
answers could make them right, but they are not in the sandbox then.

One thing cannot be seen here: an answer that is a copy of the course's own, typed or put
together by a cell. That is plagiarism.
"""

import time
from collections.abc import Callable
from pathlib import Path

from lessons_grading.run_cells import run_cells
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import text_of
from lessons_grading.try_answer import examine, is_refused
from lessons_grading.work import Work
from lessons_lib import checks
from lessons_lib.checks import CheckResult, Exercise

LONGEST_MESSAGE = 4_000  # characters


def grade_notebook(
    path: Path,
    student: str,
    seed: int,
    limits: Limits = Limits(),
    progress: Callable[[], object] = lambda: None,
) -> SubmissionGrade:
    """The grade of one notebook. A bad submission never raises.

    The sandbox ends with the thread that calls this.

    seed: chooses the hidden cases.
    progress: called before each run in the sandbox.
    Raises RuntimeError if no sandbox can be started, or if this machine cannot try our own
    answer either (MachineFault).
    """
    path = Path(path)
    notebook = read_notebook(path, student)
    return grade_read(notebook, text_of(path.name), student, seed, limits, progress)


def grade_read(
    notebook: Notebook,
    name: str,
    student: str,
    seed: int,
    limits: Limits = Limits(),
    progress: Callable[[], object] = lambda: None,
) -> SubmissionGrade:
    """The grade of a notebook that was read, perhaps on another machine.

    name: of its file.
    """
    started = time.monotonic()
    was_read = bool(notebook.digest)
    exercises = checks.exercises_of(notebook.lesson) if notebook.lesson and was_read else ()
    work = Work(notebook, exercises, seed, limits, progress)
    try:
        run_cells(work)
        work.reported.bytes = 0
        grades = tuple(grade_exercise(work, exercise) for exercise in exercises)
    finally:
        work.close()
    return SubmissionGrade(
        student,
        name,
        notebook.digest,
        notebook.lesson,
        grades,
        work.list_events(),
        round(time.monotonic() - started, 2),
        is_final=was_read and not work.starved,
        tried=work.tried,
        repeated=work.repeated,
    )


def grade_exercise(work: Work, exercise: Exercise) -> ExerciseGrade:
    """The newest answer that passes, or else the newest one that can be tried."""
    started = time.monotonic()
    result = None
    for answer in sorted(reversed(work.answers[exercise.id]), key=is_refused):
        another = examine(work, exercise, answer)
        result = result if result and not another.passed else another
        if result.passed:
            break
    if result is None:
        result = CheckResult(
            exercise.id,
            False,
            "missing",
            f"No cell that could be run defines `{exercise.answer_name}`.",
        )
    earned = exercise.points if result.passed else 0
    return ExerciseGrade(
        exercise.id,
        exercise.title,
        exercise.points,
        earned,
        result.passed,
        result.mistake,
        result.message[:LONGEST_MESSAGE],
        round(time.monotonic() - started, 2),
    )
