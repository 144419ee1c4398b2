"""Runs the cells of a submission in its sandbox, and takes the answers that they give."""

import functools
from collections import deque

from lessons_grading import course
from lessons_grading.notebook import Cell
from lessons_grading.sandbox import Limits, Run
from lessons_grading.sandbox_messages import STOPPED, Answer, Begun, CellFailed, Packed
from lessons_grading.work import Work, is_refused
from lessons_lib import checks
from lessons_lib.processes import isolation

RESTARTS = 3  # of a notebook whose cells end their process
MOST_ANSWERS = 5  # for each exercise, the last ones count
GRACE = 5.0  # seconds that a cell may exceed its limit before its process is ended
SETUP_LIMIT = 120.0  # own seconds before the first cell, for our own files and imports


def run_cells(work: Work) -> None:
    """Runs the notebook. If a cell ends its process, another one runs the other cells."""
    cells = [] if work.notebook.problem else list(work.notebook.cells)
    for _ in range(1 + RESTARTS):
        ended_by = _run_once(work, cells) if cells else None
        if ended_by is None or work.is_over() or work.taken.is_too_much():
            return
        if work.seconds >= work.limits.notebook_seconds:
            work.note(f"the notebook was stopped after {work.limits.notebook_seconds:g} s")
            return
        cells = [cell for cell in cells if cell.number != ended_by]
    work.note(f"after {RESTARTS} more tries its cells were not run again")


def _run_once(work: Work, cells: list[Cell]) -> int | None:
    """Runs these cells in a process. Returns the number of one that ended it, or None."""
    run = work.run(
        "run_cells",
        work.notebook.files,
        [(cell.number, cell.source) for cell in cells],
        _every_exercise(),
        [exercise.id for exercise in work.exercises],
        work.limits.cell_seconds,
        files=course.whole(),
        seconds=SETUP_LIMIT,
        output_limit=work.limits.output,
    )
    number = _follow(work, run, deque(cell.number for cell in cells))
    outcome = run.outcome
    work.seconds += run.seconds
    if outcome.ending == "returned":
        return None
    if run.from_outside:
        work.was_disturbed(f"cell {number}" if number else "the notebook", outcome)
    elif number is None:
        raise RuntimeError(
            f"The cells could not be run: {outcome.ending}, {outcome.error or outcome.detail}"
        )
    elif work.seconds < work.limits.notebook_seconds:
        work.note(_how_it_ended(number, outcome, work.limits))
    return number


def _how_it_ended(number: int, outcome: isolation.Outcome, limits: Limits) -> str:
    """How a cell has ended its process, in words."""
    too_slow = f"cell {number} was stopped after {limits.cell_seconds:g} s"
    if outcome.detail == f"exit code {STOPPED}":
        return too_slow
    raised = isolation.describe_error(outcome.error) if outcome.error is not None else ""
    return {
        "raised": f"cell {number} raised {raised}",
        "crashed": f"the process crashed in cell {number}: {outcome.detail}",
        "exited": f"the process ended in cell {number}, {outcome.detail}",
        "timed out": too_slow,
        "flooded": f"cell {number} wrote more than {limits.output / 2**20:g} MB",
    }.get(outcome.ending, f"cell {number} ended its process")


def _follow(work: Work, run: Run, upcoming: deque[int]) -> int | None:
    """Takes the run's reports. Returns the number of the last cell that has begun."""
    limit = number = None
    while (report := run.next(limit)) is not None:
        limit = None
        match report:
            # a cell has its time once
            case Begun(begun) if upcoming and begun == upcoming[0]:
                number = upcoming.popleft()
                left = work.limits.notebook_seconds - work.seconds - run.seconds
                limit = max(0.0, min(work.limits.cell_seconds + GRACE, left))
            case CellFailed(cell, words):
                work.note(f"cell {cell} {words}")
            case Answer(exercise, packed) if exercise in work.answers and len(packed) == 1:
                _keep(work.answers[exercise], packed)
    return number


def _keep(answers: list[Packed], packed: Packed):
    """Keeps the last few answers, and the last few values that are no answer."""
    alike = [other for other in answers if is_refused(other) == is_refused(packed)]
    if len(alike) == MOST_ANSWERS:
        answers.remove(alike[0])
    answers.append(packed)


@functools.cache
def _every_exercise() -> dict[str, tuple[str, str, bool]]:
    """The exercises, in the form that worker.run_cells needs."""
    return {
        exercise.id: (
            exercise.answer_name,
            exercise.language,
            isinstance(exercise.reference, type),
        )
        for lesson in checks.lessons()
        for exercise in checks.exercises_of(lesson)
    }
