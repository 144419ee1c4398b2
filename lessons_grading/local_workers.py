"""Grades submissions in processes on this machine, and each of them twice if needed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice

import msgspec

from lessons_grading.grades import SubmissionGrade
from lessons_grading.grading_process import GradingProcesses
from lessons_grading.grading_server import GRADER, Order, Reply
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import Submission, text_of

Read = tuple[Submission, Notebook]
# Yields what was read with the reply; the second argument says whether nothing may run beside.
Outcomes = Callable[[Iterable[Read], bool], Iterator[tuple[Read, Reply]]]


def order_of(read: Read, seed: int, limits: Limits, grader: str = GRADER) -> bytes:
    """The order, as JSON."""
    submission, notebook = read
    name = text_of(submission.path.name)
    return msgspec.json.encode(Order(notebook, name, submission.student, seed, limits, grader))


@contextmanager
def local_workers(
    workers: int, seed: int, limits: Limits, grader: str = GRADER
) -> Iterator[Outcomes]:
    """Gives a function that grades, `workers` submissions at a time."""
    processes = GradingProcesses()
    pool = ThreadPoolExecutor(workers)

    def outcomes(submissions: Iterable[Read], alone: bool) -> Iterator[tuple[Read, Reply]]:
        waiting, running = iter(submissions), dict[Future, Read]()
        while True:
            for read in islice(waiting, (1 if alone else workers) - len(running)):
                order = order_of(read, seed, limits, grader)
                running[pool.submit(processes.grade, order, limits.total_seconds)] = read
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), msgspec.json.decode(done.result(), type=Reply)

    try:
        yield outcomes
    finally:
        processes.close()
        pool.shutdown(cancel_futures=True)


def twice_if_needed(
    submissions: Iterable[Read], outcomes: Outcomes
) -> Iterator[tuple[Submission, SubmissionGrade]]:
    """Yields each submission with its grade. Those without a final one are tried twice.

    The second time is alone, at the end. A submission that uses up its whole time by the clock
    twice keeps that grade: no further run waits for it.
    """
    again: list[tuple[Read, SubmissionGrade]] = []
    for read, reply in outcomes(submissions, False):
        grade = reply.grade or read[0].without_points(
            f"the first attempt to grade this failed: {reply.failed}"
        )
        if grade.is_final:
            yield read[0], grade
        else:
            again.append((read, grade))
    first = {read[0]: grade for read, grade in again}
    for (submission, _), reply in outcomes([read for read, _ in again], True):
        grade = first[submission]
        if reply.grade is None:
            events = (*grade.events, f"the second attempt failed: {reply.failed}")
            yield submission, msgspec.structs.replace(grade, events=events)
        else:
            is_final = reply.grade.is_final or (grade.is_over and reply.grade.is_over)
            events = tuple(event for event in grade.events if event.startswith("the first"))
            yield (
                submission,
                msgspec.structs.replace(
                    reply.grade, is_final=is_final, events=(*reply.grade.events, *events)
                ),
            )
