"""The work on one submission: its sandbox, the answers of its cells, and what happened."""

import functools
from collections.abc import Callable
from contextlib import suppress

from lessons_grading.hidden_cases import Effort
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits, Reported, Run, Sandbox
from lessons_lib import cuda_builds
from lessons_lib.checks import Exercise
from lessons_lib.compiler_errors import CompileError
from lessons_processes import isolation

MOST_EVENTS = 12


class Work:
    """Use `close` at the end.

    seed: chooses the hidden cases.
    progress: called before each run in the sandbox.
    answers: what the cells gave for each exercise, as worker.py packs it.
    seconds: the cells' own.
    starved: whether only the clock has ended a run.
    tried, repeated: how many answers were tried, and how many were known already.
    """

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
        self.seconds, self.starved = 0.0, False
        self.tried = self.repeated = 0
        if notebook.problem:
            self.note(notebook.problem)
        self._sandbox: Sandbox | None = None
        self._progress = progress
        self.reported, self.effort = Reported(), Effort()

    def note(self, event: str):
        if len(self.events) < 1_000:
            self.events[" ".join(event.split())[:400]] = None

    def list_events(self) -> tuple[str, ...]:
        events = list(self.events)
        if len(events) > MOST_EVENTS:
            events[MOST_EVENTS - 1 :] = [
                f"and {len(events) - MOST_EVENTS + 1} more of this kind"
            ]
        return (*([] if self.limits.sandboxed else ["it ran without a sandbox"]), *events)

    def beside(self) -> "Work":
        """Work under the same limits, in a sandbox of its own."""
        return Work(self.notebook, self.exercises, self.seed, self.limits, self._progress)

    def close(self):
        if self._sandbox:
            self._sandbox.close()

    def run(
        self, function: str, *arguments, files: dict[str, str], seconds: float, **limits
    ) -> Run:
        self._progress()
        if not (self._sandbox and self._sandbox.alive):
            self.close()
            if any(exercise.language == "cuda" for exercise in self.exercises):
                _build_runtimes()
            self._sandbox = Sandbox(self.limits, self.reported)
        return self._sandbox.run(function, *arguments, files=files, seconds=seconds, **limits)

    def stop(self, run: Run):
        run.stop()
        if run.starved:
            self.starved = True
            self.note("the machine was too busy to try an answer")


def how_it_ended(run: Run) -> isolation.Outcome:
    """How a run ended, after its last report."""
    assert run.outcome is not None
    return run.outcome


@functools.cache
def _build_runtimes():
    """Builds the runtimes that run CUDA on the CPU, once for all sandboxes."""
    for checked in (True, False):
        with suppress(CompileError):  # the sandboxes cannot build either then, and say so
            cuda_builds.runtime_library(checked)
