"""All submissions of a folder, graded several at a time."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path

from grading.grades import SubmissionGrade
from lessons_lib import isolation

Grader = Callable[[Path, str], SubmissionGrade]
_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Submission:
    """`path`: the notebook, or the folder of a student who handed in none."""

    student: str
    path: Path

    def without_points(self, *events: str) -> SubmissionGrade:
        name = "" if self.path.is_dir() else text_of(self.path.name)
        return SubmissionGrade(self.student, name, "", None, (), events, 0.0)


def find_submissions(folder: Path) -> list[Submission]:
    """STUDENT.ipynb, and the notebooks in folders STUDENT/, however deep: nbgrader's are in STUDENT/LESSON/."""
    def notebooks(paths) -> list[Path]:
        return sorted(path for path in paths if path.suffix.lower() == ".ipynb" and not hidden(path))

    def hidden(path: Path) -> bool:  # Jupyter's .ipynb_checkpoints, and what macOS puts into archives
        return any(part.startswith(".") or part == "__MACOSX" for part in path.relative_to(folder).parts)

    submissions = []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not hidden(entry):
            found = [] if entry.is_symlink() else notebooks(entry.rglob("*"))
            submissions += [Submission(text_of(entry.name), path) for path in found or [entry]]
        else:
            submissions += [Submission(text_of(path.stem), path) for path in notebooks([entry])]
    return submissions


def text_of(name: str) -> str:
    """A file's name as text that can be written, even where its bytes are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def grade_all(submissions: list[Submission], grade: Grader, workers: int, patience: float = 3600.0
              ) -> Iterator[tuple[Submission, SubmissionGrade, bool]]:
    """Yields each submission with its grade, as they get done, and whether that grade is final.

    grade: a function that can be sent to another process, called as `grade(path, student)`.
    patience: seconds after which a process that grades is given up. A submission on which one is lost is tried once
    more, with nothing beside it, and then gets a grade without points that says so: another run may do better.
    """
    folders = [submission for submission in submissions if submission.path.is_dir()]
    yield from ((folder, folder.without_points("there is no notebook in this folder"), False) for folder in folders)
    lost: dict[Submission, str] = {}
    for submission, outcome in _outcomes([each for each in submissions if each not in folders], grade, workers, patience):
        if isinstance(outcome, str):
            lost[submission] = f"the first attempt to grade this failed: {outcome}"
        else:
            yield submission, outcome, True
    for submission, outcome in _outcomes(list(lost), grade, 1, patience):
        if isinstance(outcome, str):
            yield submission, submission.without_points(lost[submission], f"the second attempt failed: {outcome}"), False
        else:
            yield submission, replace(outcome, events=(*outcome.events, lost[submission])), True


def _outcomes(submissions: list[Submission], grade: Grader, workers: int, patience: float
              ) -> Iterator[tuple[Submission, SubmissionGrade | str]]:
    """Yields each submission with its grade, or with the reason why there is none."""
    waiting = deque(submissions)
    crew = [_Worker(grade) for _ in range(min(workers, len(submissions)))]
    try:
        while waiting or any(worker.submission for worker in crew):
            for worker in crew:
                if waiting and not worker.submission:
                    worker.begin(waiting.popleft(), patience)
            busy = [worker for worker in crew if worker.submission]
            ready = wait([worker.pipe for worker in busy], min(worker.seconds_left() for worker in busy))
            for worker in busy:
                if worker.pipe in ready or not worker.seconds_left():
                    submission, outcome = worker.finish()
                    if isinstance(outcome, str):
                        worker.end()
                        crew[crew.index(worker)] = _Worker(grade)
                    yield submission, outcome
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that grades one submission after another. Whatever ends it leaves the others alone."""

    def __init__(self, grade: Grader):
        self.submission: Submission | None = None
        self.pipe, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs, grade))
        with isolation.without_main_module():
            self.process.start()
        theirs.close()

    def begin(self, submission: Submission, patience: float):
        self.submission, self.deadline = submission, time.monotonic() + patience
        with suppress(OSError):  # it has ended, as `finish` will see
            self.pipe.send((submission.path, submission.student))

    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def finish(self) -> tuple[Submission, SubmissionGrade | str]:
        submission, self.submission = self.submission, None
        try:
            return submission, self.pipe.recv() if self.pipe.poll() else "it did not come to an end"
        except (EOFError, OSError):
            self.process.join(1.0)
            return submission, f"the process that graded it ended, exit code {self.process.exitcode}"

    def end(self):
        self.pipe.close()
        self.process.terminate()
        self.process.join(5.0)
        self.process.kill()
        self.process.join()


def _serve(pipe, grade: Grader):
    """Runs in the worker: sends a grade, or the reason why there is none, for each (path, student)."""
    os.setsid()  # a session of its own: Ctrl-C is for the command, which then ends its workers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what is under way tidies up
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            path, student = pipe.recv()
            try:
                outcome = grade(path, student)
            except Exception as error:
                outcome = isolation.describe_error(error)
            pipe.send(outcome)


def _end_with_the_command():
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
