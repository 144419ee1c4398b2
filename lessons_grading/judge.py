"""Grades one submission. Its cells run in a sandbox; its results are compared with ours here.

No code of a submission ever runs in this process. Nothing that it prints, patches or returns
can say that it has passed. Its answers are tried in the sandbox, on the check's cases and on
hidden ones, and only the results come out, as data. They have to be right. The course's own
answers could make them right, but they are not in the sandbox then.

One thing cannot be seen here: an answer that is a copy of the course's own, typed or put
together by a cell. That is plagiarism.
"""

import time
from contextlib import closing

from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Notebook
from lessons_grading.run_cells import run_cells
from lessons_grading.sandbox import Limits
from lessons_grading.sandbox_messages import plain
from lessons_grading.try_answer import examine
from lessons_grading.work import Work, is_refused
from lessons_lib import checks
from lessons_lib.checks import CheckResult, Exercise

LONGEST_MESSAGE = 4_000  # characters


def grade_notebook(
    notebook: Notebook, name: str, student: str, seed: int, limits: Limits = Limits()
) -> SubmissionGrade:
    """The grade of one notebook. A bad submission never raises.

    The sandbox ends with the thread that calls this.

    name: of its file.
    seed: chooses the hidden cases.
    Raises RuntimeError if no sandbox can be started, or if this machine cannot try our own
    answer either (MachineFault).
    """
    started = time.monotonic()
    was_read = bool(notebook.digest)
    exercises = checks.exercises_of(notebook.lesson) if notebook.lesson and was_read else ()
    with closing(Work(notebook, exercises, seed, limits)) as work:
        run_cells(work)
        work.taken.bytes = 0  # what the answers report is counted anew
        grades = tuple(grade_exercise(work, exercise) for exercise in exercises)
    return SubmissionGrade(
        student,
        name,
        notebook.digest,
        notebook.lesson,
        grades,
        work.list_events(),
        round(time.monotonic() - started, 2),
        is_final=was_read and not work.from_outside,
        is_over=work.is_over(),
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
        words = f"No cell that could be run defines `{exercise.answer_name}`."
        result = CheckResult(exercise.id, False, "missing", words)
    earned = exercise.points if result.passed else 0
    return ExerciseGrade(
        exercise.id,
        exercise.title,
        exercise.points,
        earned,
        result.passed,
        result.mistake,
        plain(result.message[:LONGEST_MESSAGE]),
        round(time.monotonic() - started, 2),
    )
