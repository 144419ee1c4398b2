"""Grades one submission. Its cells run in a sandbox; its results are compared with ours here.

No code of a submission ever runs in this process. Nothing that it prints, patches or returns
can say that it has passed. Its answers are tried in the sandbox, on the check's cases and on
hidden ones, and only the results come out, as data. They have to be right. The course's own
answers could make them right, but they are not in the sandbox then.

One thing cannot be seen here: an answer that is a copy of the course's own, typed or put
together by a cell. That is plagiarism.
"""

import base64
import functools
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lessons_grading import course
from lessons_grading.exam import TOO_MUCH_EFFORT, Effort, broken, compare, exam_of, refusal
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.sandbox import LARGEST_SUM, Limits, Reported, Run, Sandbox
from lessons_grading.submissions import text_of
from lessons_lib import checks, cuda_builds
from lessons_lib.checks import CheckResult, Exercise
from lessons_lib.compiler_errors import CompileError
from lessons_processes import isolation
from lessons_processes.isolation import BUSY

RESTARTS = 3  # of a notebook whose cells end their process
MOST_ANSWERS = 5  # for each exercise, the last ones count
MOST_EVENTS = 12
LONGEST_MESSAGE = 4_000  # characters
GRACE = 5.0  # seconds that a cell may exceed its limit before its process is ended
SETUP_LIMIT = 120.0  # own seconds before the first cell: files and imports, all of them ours
RUN_FACTOR = 2  # there are about as many hidden cases as visible ones


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
    Raises RuntimeError if no sandbox can be started.
    """
    path = Path(path)
    return grade_read(read_notebook(path), text_of(path.name), student, seed, limits, progress)


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
    work = _Grading(notebook, exercises, seed, limits, progress)
    try:
        work.run_cells()
        work.reported.bytes = 0
        grades = tuple(map(work.grade, exercises))
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
    )


class _Grading:
    """The grading of one submission: its sandbox, the answers of its cells, what happened."""

    def __init__(
        self,
        notebook: Notebook,
        exercises: tuple[Exercise, ...],
        seed: int,
        limits: Limits,
        progress: Callable[[], object] = lambda: None,
    ):
        self.notebook = notebook
        self.exercises = exercises
        self.seed = seed
        self.limits = limits
        self.answers: dict[str, list[dict]] = {exercise.id: [] for exercise in exercises}
        self.events: dict[str, None] = {}  # each once, in their order
        # its cells' own seconds; whether only the clock has ended a run
        self.seconds, self.starved = 0.0, False
        if notebook.problem:
            self._note(notebook.problem)
        self._sandbox: Sandbox | None = None
        self._progress = progress
        self.reported, self.effort = Reported(), Effort()

    def _note(self, event: str):
        if len(self.events) < 1_000:
            self.events[" ".join(event.split())[:400]] = None

    def list_events(self) -> tuple[str, ...]:
        events = list(self.events)
        if len(events) > MOST_EVENTS:
            events[MOST_EVENTS - 1 :] = [
                f"and {len(events) - MOST_EVENTS + 1} more of this kind"
            ]
        return (*([] if self.limits.sandboxed else ["it ran without a sandbox"]), *events)

    def close(self):
        if self._sandbox:
            self._sandbox.close()

    def _run(
        self, function: str, *arguments, files: dict[str, str], seconds: float, **limits
    ) -> Run:
        self._progress()
        if self._sandbox and not self._sandbox.alive:
            self._sandbox.close()
            self._sandbox = None
        if not self._sandbox:
            if any(exercise.language == "cuda" for exercise in self.exercises):
                _build_runtimes()
            self._sandbox = Sandbox(self.limits, self.reported)
        return self._sandbox.run(function, *arguments, files=files, seconds=seconds, **limits)

    def run_cells(self) -> None:
        """Runs the notebook. If a cell ends its process, another one runs the other cells."""
        cells = (
            []
            if self.notebook.problem
            else [(cell.number, cell.source) for cell in self.notebook.cells]
        )
        deadline = time.monotonic() + BUSY * self.limits.notebook_seconds
        for _ in range(1 + RESTARTS):
            ended_by = self._run_once(cells, deadline) if cells else None
            if ended_by is None or self.starved or self.reported.is_too_much():
                return
            if self.seconds >= self.limits.notebook_seconds:
                self._note(
                    f"the notebook was stopped after {self.limits.notebook_seconds:g} s"
                )
                return
            cells = [cell for cell in cells if cell[0] != ended_by]
        self._note(f"after {RESTARTS} more tries its cells were not run again")

    def _run_once(self, cells, deadline: float) -> int | None:
        """Runs these cells in a process. Returns the number of one that ended it, or None."""
        wanted = [exercise.id for exercise in self.exercises]
        run = self._run(
            "run_cells",
            cells,
            _every_exercise(),
            wanted,
            self.limits.cell_seconds,
            files=course.whole(),
            clean=True,
            seconds=SETUP_LIMIT,
            output_limit=self.limits.output,
        )
        upcoming, limit, number = deque(cell for cell, _ in cells), None, None
        while (report := run.next(limit, max(0.0, deadline - time.monotonic()))) is not None:
            limit = None
            match report:
                # a cell has its time once
                case ["cell", int(begun)] if upcoming and begun == upcoming[0]:
                    number = upcoming.popleft()
                    left = self.limits.notebook_seconds - self.seconds - run.seconds
                    limit = max(0.0, min(self.limits.cell_seconds + GRACE, left))
                case ["error", int(cell), str(words)]:
                    self._note(f"cell {cell} raised {words}")
                case ["stopped", int(cell)]:
                    self._note(f"cell {cell} was stopped after {self.limits.cell_seconds:g} s")
                case [
                    "answer",
                    str(exercise),
                    {"text": str()}
                    | {"pickle": str()}
                    | {"refused": [str(), str()]} as answer,
                ] if exercise in self.answers:
                    alike = [
                        other
                        for other in self.answers[exercise]
                        if _is_refused(other) == _is_refused(answer)
                    ]
                    if len(alike) == MOST_ANSWERS:
                        self.answers[exercise].remove(alike[0])
                    self.answers[exercise].append(answer)
        outcome = _ended(run)
        self.seconds += run.seconds
        if outcome.ending == "returned":
            return None
        if run.starved:
            self.starved = True
            self._note(
                "the machine was too busy for "
                + (f"cell {number}" if number else "the notebook")
            )
            return number
        if number is None:
            raise RuntimeError(
                "The cells could not be run: "
                f"{outcome.ending}, {outcome.error or outcome.detail}"
            )
        if self.seconds >= self.limits.notebook_seconds:
            return number
        raised = isolation.describe_error(outcome.error) if outcome.error is not None else ""
        self._note(
            {
                "raised": f"cell {number} raised {raised}",
                "crashed": f"the process crashed in cell {number}: {outcome.detail}",
                "exited": f"the process ended in cell {number}, {outcome.detail}",
                "timed out": f"cell {number} was stopped after {self.limits.cell_seconds:g} s",
                "flooded": f"cell {number} wrote more than {self.limits.output / 2**20:g} MB",
            }.get(outcome.ending, f"cell {number} ended its process")
        )
        return number

    def grade(self, exercise: Exercise) -> ExerciseGrade:
        """The newest answer that passes, or else the newest one that can be tried."""
        started = time.monotonic()
        result = None
        for answer in sorted(reversed(self.answers[exercise.id]), key=_is_refused):
            another = self._examine(exercise, answer)
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

    def _examine(self, exercise: Exercise, answer: dict) -> CheckResult:
        """Like `checks.run`, but in the sandbox and with the hidden cases."""
        if self.reported.is_too_much():
            self._note(words := f"it reported more than {LARGEST_SUM >> 20} MB")
            return CheckResult(exercise.id, False, "wrong", f"This was not tried: {words}.")
        if self.effort.is_too_much():
            return CheckResult(exercise.id, False, "wrong", TOO_MUCH_EFFORT)
        if _is_refused(answer):
            refused = refusal(exercise, ["refused", *answer["refused"]])
            assert refused is not None  # _run_once lets no other form through
            return refused
        if exercise.language != "python":
            run = self._run(
                "build",
                _tryout_of_none(exercise.id),
                answer,
                files=_files(exercise.id),
                seconds=checks.BUILD_TIME_LIMIT,
                clean=True,
            )
            refused = refusal(exercise, run.next())
            self._stop(run)
            outcome = _ended(run)
            if refused or outcome.ending != "returned":
                return refused or broken(exercise, outcome, None)
        verdict, crash = self._observe(exercise, answer, {})
        if crash is None:
            return verdict
        return checks.in_general(
            self._observe(exercise, answer, {crash.last_report[0]: checks.CRASH})[0], crash
        )

    def _observe(
        self, exercise: Exercise, answer: dict, ended: dict
    ) -> tuple[CheckResult, isolation.Outcome | None]:
        """The verdict, and how the run ended if it crashed before a case showed a difference.

        Then the cases after that one are worth a try, as in `checks.run`.
        """
        exam = exam_of(exercise.id, self.seed)
        run = self._run(
            "observe",
            exam.packed,
            answer,
            [*ended],
            files=_files(exercise.id),
            seconds=RUN_FACTOR * exercise.time_limit,
            clean=exercise.language == "python",
        )
        try:
            return compare(exam, run, ended, self.effort)
        finally:
            self._stop(run)

    def _stop(self, run: Run):
        run.stop()
        if run.starved:
            self.starved = True
            self._note("the machine was too busy to try an answer")


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


@functools.lru_cache(maxsize=100)
def _files(exercise_id: str) -> dict[str, str]:
    return course.without_answers(checks.find(exercise_id))


@functools.lru_cache(maxsize=100)
def _tryout_of_none(exercise_id: str) -> str:
    return base64.b64encode(course.pack(checks.find(exercise_id), ())).decode()


def _ended(run: Run) -> isolation.Outcome:
    """How a run ended, after its last report."""
    assert run.outcome is not None
    return run.outcome


def _is_refused(answer: dict) -> bool:
    """Whether it is no answer. Many notebooks use a name like `start` for something else."""
    return "refused" in answer


@functools.cache
def _build_runtimes():
    """Builds the runtimes that run CUDA on the CPU, once for all sandboxes."""
    for checked in (True, False):
        with suppress(CompileError):  # the sandboxes cannot build either then, and say so
            cuda_builds.runtime_library(checked)
