"""The work on one submission: its sandboxes, the answers of its cells, and the events."""

import functools
import time
from contextlib import suppress

from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits, Run, Sandbox, Taken
from lessons_grading.sandbox_messages import Packed
from lessons_lib.checks import Exercise
from lessons_lib.cuda import builds
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.processes import isolation

MOST_EVENTS = 12
LARGEST_EFFORT = 60.0  # our own seconds for the results of one submission


class Effort:
    """Processor seconds of this thread for reading and comparing one submission's results."""

    def __init__(self):
        self._before = 0.0
        self._begun: float | None = None

    def __enter__(self):
        self._begun = time.thread_time()

    def __exit__(self, *_):
        self._before, self._begun = self.seconds, None

    @property
    def seconds(self) -> float:
        return self._before + (
            time.thread_time() - self._begun if self._begun is not None else 0.0
        )

    def add(self, seconds: float):
        self._before += seconds

    def is_too_much(self) -> bool:
        return self.seconds > LARGEST_EFFORT


class Work:
    """All that is done with one submission, which ends with `close`.

    seed: chooses the hidden cases.
    answers: what the cells gave for each exercise.
    seconds: the cells' own.
    from_outside: whether the clock has ended a run, or a signal that is not the submission's.
        Then the grade is not final, and no verdict is remembered.
    tried, repeated: how many answers were tried, and how many were known already.
    """

    def __init__(
        self, notebook: Notebook, exercises: tuple[Exercise, ...], seed: int, limits: Limits
    ):
        self.notebook, self.exercises = notebook, exercises
        self.seed, self.limits = seed, limits
        self.answers: dict[str, list[Packed]] = {exercise.id: [] for exercise in exercises}
        self.events: dict[str, None] = {}  # each once, in their order
        self.seconds, self.from_outside = 0.0, False
        self.tried = self.repeated = 0
        self.taken, self.effort = Taken(limits.total_seconds), Effort()
        self._sandboxes: dict[bool, Sandbox] = {}
        if notebook.problem:
            self.note(notebook.problem)

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

    def close(self):
        for sandbox in self._sandboxes.values():
            sandbox.close()

    def run(self, function: str, *arguments, apart: bool = False, **options) -> Run:
        """Starts a run, with the arguments of Run.

        apart: whether it runs in a sandbox in which no cell of the submission has run.
        """
        sandbox = self._sandboxes.get(apart)
        if not (sandbox and sandbox.alive):
            if sandbox:
                sandbox.close()
            if any(exercise.language == "cuda" for exercise in self.exercises):
                _build_runtimes()
            sandbox = self._sandboxes[apart] = Sandbox(self.limits, self.taken)
        return Run(sandbox, function, *arguments, **options)

    def leave_apart(self):
        """Ends the sandbox that is apart: no other answer finds what this one has left."""
        if sandbox := self._sandboxes.pop(True, None):
            sandbox.close()

    def stop(self, run: Run):
        run.stop()
        if run.from_outside:
            self.was_disturbed("an answer", run.outcome)

    def was_disturbed(self, what: str, outcome: isolation.Outcome):
        """Notes that the clock or a signal has ended a run."""
        self.from_outside = True
        if self.is_over():
            minutes = self.limits.total_seconds / 60
            self.note(f"it was stopped after {minutes:g} minutes by the clock, with {what}")
        elif outcome.ending == "timed out":
            self.note(f"the machine was too busy for {what}")
        else:
            self.note(f"something killed {what}: perhaps the machine has too little memory")

    def is_over(self) -> bool:
        """Whether the submission's time by the clock is over."""
        return not self.taken.seconds_left()


def is_refused(answer: Packed) -> bool:
    """Whether it is no answer. Many notebooks use a name like `start` for something else."""
    return "refused" in answer


@functools.cache
def _build_runtimes():
    """Builds the runtimes that run CUDA on the CPU, once for all sandboxes."""
    for checked in (True, False):
        with suppress(CompileError):  # the sandboxes cannot build either then, and say so
            builds.runtime_library(checked)
