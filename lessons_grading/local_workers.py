"""Gives orders to the workers, and tries again what has no final grade."""

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

import msgspec

from lessons_grading.grades import SubmissionGrade
from lessons_grading.grading_process import LARGEST_REPLY, GradingProcesses, Workers
from lessons_grading.grading_server import GRADER, Order, Reply
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import Submission

LOOK_EVERY = 2.0  # seconds between two looks at the workers

Read = tuple[Submission, Notebook]


class Grading(NamedTuple):
    """What all orders have in common."""

    seed: int
    limits: Limits
    grader: str = GRADER

    def order(self, read: Read) -> bytes:
        submission, notebook = read
        order = Order(notebook, submission.name, submission.student, *self)
        return msgspec.json.encode(order)


@contextmanager
def local_workers(workers: int, seconds: float) -> Iterator[Workers]:
    """Processes on this machine.

    seconds: that each order may take.
    """
    processes, pool = GradingProcesses(), ThreadPoolExecutor(workers)
    try:
        yield Workers(
            lambda order: pool.submit(processes.grade, order, seconds), lambda: workers
        )
    finally:
        processes.close()
        pool.shutdown(cancel_futures=True)


def replies(
    reads: Iterable[Read], workers: Workers, grading: Grading, alone: bool = False
) -> Iterator[tuple[Read, Reply]]:
    """The reply to each, as soon as it is there.

    alone: whether only one may be graded at a time.
    """
    waiting, running = iter(reads), dict[Future, Read]()
    while True:
        room = min(1, workers.room()) if alone else workers.room()
        for read in islice(waiting, max(0, room - len(running))):
            running[workers.submit(grading.order(read))] = read
        if not running:
            return
        for done in wait(running, LOOK_EVERY, FIRST_COMPLETED).done:
            yield running.pop(done), _reply_of(done)


def _reply_of(done: Future) -> Reply:
    try:
        text = done.result()
        if len(text) <= LARGEST_REPLY:
            return msgspec.json.decode(text, type=Reply)
        return Reply(failed="its reply is too large")
    except msgspec.MsgspecError:
        return Reply(failed="its reply cannot be read")
    except Exception as error:  # Dask's own
        is_lost = type(error).__name__ in ("KilledWorker", "CancelledError")
        return Reply(failed="its worker ended" if is_lost else f"on its worker: {error}")


def twice_if_needed(
    reads: Iterable[Read], workers: Workers, grading: Grading
) -> Iterator[tuple[Submission, SubmissionGrade]]:
    """Yields each submission with its grade, after a second try if the first is not final.

    The second tries come at the end, one at a time. If a submission uses up its whole time by
    the clock twice, its grade is final: no further run waits for it.
    """
    open_grades: dict[Submission, SubmissionGrade] = {}
    again: list[Read] = []
    for read, reply in replies(reads, workers, grading):
        submission, failed = read[0], f"the first attempt to grade this failed: {reply.failed}"
        grade = reply.grade or submission.without_points(failed)
        if grade.is_final:
            yield submission, grade
        else:
            again.append(read)
            open_grades[submission] = grade
    for (submission, _), reply in replies(again, workers, grading, alone=True):
        before = open_grades[submission]
        grade = reply.grade or before
        if reply.grade:
            events = [event for event in before.events if event.startswith("the first")]
        else:
            events = [f"the second attempt failed: {reply.failed}"]
        is_over = reply.grade is not None and grade.is_over and before.is_over
        yield (
            submission,
            msgspec.structs.replace(
                grade,
                events=(*grade.events, *events),
                is_final=grade.is_final or is_over,
            ),
        )
