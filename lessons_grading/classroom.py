"""Grades all submissions of a folder, several at a time."""

import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

from lessons_grading.grades import SubmissionGrade
from lessons_grading.submissions import Submission
from lessons_grading.try_answer import remember_answers
from lessons_processes import isolation

Grader = Callable[..., SubmissionGrade]
Judged = Generator[tuple[Submission, SubmissionGrade], None, None]
Outcome = SubmissionGrade | str  # a grade, or the reason why there is none
_context = multiprocessing.get_context("forkserver")
_LARGEST = 64 << 20  # bytes of a worker's message


def grade_all(
    submissions: list[Submission],
    grade: Grader,
    workers: int,
    patience: float = 3600.0,
    scratch: Path | None = None,
) -> Judged:
    """Yields each submission with its grade, as soon as it has one.

    If a process is lost on a submission, or its grade is not final, the submission is tried
    again while nothing else runs. If it still has no final grade, another run may do better.

    grade: a function that can be sent to another process. It is called as
        `grade(path, student, progress=…)` and calls `progress()` before each of its steps. It
        must come to an end.
    patience: seconds for a step. After that the process is given up.
    scratch: a folder for temporary files of the processes.
    """
    new_worker = functools.partial(_Worker, grade, patience, scratch)

    def outcomes(some: list[Submission], alone: bool) -> Iterator[tuple[Submission, Outcome]]:
        return _outcomes(some, new_worker, 1 if alone else workers)

    return twice_if_needed(submissions, outcomes)


def twice_if_needed(
    submissions: list[Submission],
    outcomes: Callable[[list[Submission], bool], Iterator[tuple[Submission, Outcome]]],
) -> Judged:
    """Yields each submission with its grade. Those without a final one are tried twice.

    outcomes: yields each of these submissions with its outcome; the second argument says
        whether nothing may run beside one.
    """
    for submission in submissions:
        if submission.problem:
            yield submission, submission.without_points(submission.problem)
    again: dict[Submission, tuple[SubmissionGrade, tuple[str, ...]]] = {}
    for submission, outcome in outcomes(
        [each for each in submissions if not each.problem], False
    ):
        if isinstance(outcome, str):
            again[submission] = (
                submission.without_points(),
                (f"the first attempt to grade this failed: {outcome}",),
            )
        elif outcome.is_final:
            yield submission, outcome
        else:
            again[submission] = outcome, ()
    for submission, outcome in outcomes(list(again), True):
        result, events = again[submission]
        if isinstance(outcome, str):
            events = (*events, f"the second attempt failed: {outcome}")
        else:
            result = outcome
        yield submission, replace(result, events=(*result.events, *events))


def _outcomes(
    submissions: list[Submission], new_worker: Callable[[], "_Worker"], workers: int
) -> Iterator[tuple[Submission, Outcome]]:
    """Yields each submission with its grade, or with the reason why it has none."""
    waiting = deque(submissions)
    crew = [new_worker() for _ in range(min(workers, len(submissions)))]
    try:
        while waiting or any(worker.submission for worker in crew):
            for worker in crew:
                if waiting and not worker.submission:
                    worker.begin(waiting.popleft())
            busy = [(worker, worker.submission) for worker in crew if worker.submission]
            ready = wait(
                [worker.pipe for worker, _ in busy],
                min(worker.seconds_left() for worker, _ in busy),
            )
            for worker, submission in busy:
                outcome = worker.outcome(worker.pipe in ready)
                if outcome is None:
                    continue
                worker.submission = None
                if isinstance(outcome, str):
                    worker.end()
                    crew[crew.index(worker)] = new_worker()
                yield submission, outcome
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that grades submissions, one after another. If it dies, the others go on."""

    def __init__(self, grade: Grader, patience: float, scratch: Path | None):
        self.patience = patience
        self.submission: Submission | None = None
        self.pipe, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs, grade, scratch))
        with isolation.without_main_module():
            isolation.ensure_server()
            self.process.start()
        theirs.close()

    def begin(self, submission: Submission):
        self.submission, self.deadline = submission, time.monotonic() + self.patience
        with suppress(OSError):  # it has ended; `outcome` will see that
            self.pipe.send((submission.path, submission.student))

    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def outcome(self, is_ready: bool) -> Outcome | None:
        """The grade, or the reason why there is none, or None while it is still at work."""
        try:
            if not is_ready:
                return None if self.seconds_left() else "it did not come to an end"
            match json.loads(self.pipe.recv_bytes(_LARGEST)):
                case {"grade": grade}:
                    return SubmissionGrade.from_json(grade)
                case {"failed": reason}:
                    return reason
            self.deadline = time.monotonic() + self.patience  # a step is done
            return None
        except (EOFError, OSError):
            self.process.join(1.0)
            return f"the process that graded it ended, exit code {self.process.exitcode}"

    def end(self):
        self.pipe.close()
        self.process.terminate()
        self.process.join(5.0)
        self.process.kill()
        self.process.join()


def _serve(pipe, grade: Grader, scratch: Path | None):
    """Runs in the worker. For each (path, student) sends its steps, then a grade or a reason.

    Everything is JSON, because much of it comes from submissions.
    """

    def send(**message):
        pipe.send_bytes(json.dumps(message).encode())

    os.setsid()  # Ctrl-C is for the command, which then ends its workers
    tidy_up_at_the_end()
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    tempfile.tempdir = str(scratch) if scratch else None
    remember_answers()
    with suppress(EOFError, OSError):
        while True:
            path, student = pipe.recv()
            try:
                send(grade=grade(path, student, progress=send).to_json())
            except Exception as error:
                send(failed=isolation.describe_error(error))


def _end_with_the_command():
    command = multiprocessing.parent_process()
    assert command is not None  # this is a worker
    command.join()
    end_this_process()


def tidy_up_at_the_end():
    """Makes SIGTERM an exception in this process, once."""

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)


def end_this_process():
    """From another thread. A call that begins to wait just then does not hear it at first."""
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
