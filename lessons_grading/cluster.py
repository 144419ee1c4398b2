"""Grades on the workers of a Dask scheduler: `--scheduler tcp://…`.

Dask keeps the list of workers, carries orders and replies, and notices when a worker is gone.
Each order is for one worker, so that it is known which submissions were on one that died.
"""

import dataclasses
import json
import queue
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from lessons_grading import crew, dask_link
from lessons_grading.classroom import Outcome
from lessons_grading.crew import Crew, Worker
from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import grade_read
from lessons_grading.judge_process import order_of
from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.notebook import read_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import Submission, text_of

LOOK_EVERY = 2.0  # seconds between two looks at the list of workers
GRADER = "lessons_grading.judge:grade_read"


class Cluster:
    """The workers of the scheduler at `address`. Use it in a `with` statement.

    seed, limits, patience: of each grading, as in classroom.grade_all.
    say: is called with a sentence for the person who waits.
    grader: what grades, as in judge_process.order_of.
    Raises ConnectionError, with a sentence, if no scheduler is there.
    """

    def __init__(
        self,
        address: str,
        seed: int,
        limits: Limits,
        patience: float,
        say: Callable[[str], object],
        grader: str = GRADER,
    ):
        self.address, self.say = address, say
        self.seed, self.limits, self.grader = seed, dataclasses.asdict(limits), grader
        self.limited_by: set[str] = set()
        course, mistakes = course_digest(), mistakes_digest()
        self.crew = Crew(course, mistakes, limits.sandboxed, say)
        self._about = {
            "command": secrets.token_hex(8),
            "course": course,
            "mistakes": mistakes,
            "patience": patience,
        }
        self._looks: dict[Any, Worker] = {}
        self._orders: dict[Any, tuple[Worker, Submission, str]] = {}
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._looked = float("-inf")
        self._client = dask_link.connect(address, dask_link.CONNECT_LIMIT)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_):
        at_work = {worker.address for worker, _, _ in self._orders.values()}
        self._give_up_all()
        with suppress(Exception):  # the scheduler may be gone
            if at_work:
                command = self._about["command"]
                dask_link.run(self._client, [*at_work], f"stop({command!r})")
            self._client.close(timeout=5.0)

    def outcomes(
        self, submissions: list[Submission], alone: bool
    ) -> Iterator[tuple[Submission, Outcome]]:
        """Yields each submission with its grade, or with the reason why it has none.

        alone: whether a worker gets no more than one at a time.
        Raises NoWorkers if nobody is there to grade, for too long.
        """
        waiting = deque(submissions)
        while waiting or self._orders:
            waiting.extendleft(self._look_for_workers())
            while waiting and (worker := self.crew.free_worker(alone, waiting[0])):
                submission = waiting.popleft()
                if unreadable := self._begin(worker, submission):
                    yield submission, unreadable
            if waiting and self._looked > float("-inf"):  # else the list is still to come
                self.crew.expect_some(busy=bool(self._orders or self._looks))
            for submission, outcome in self._next_outcomes():
                if outcome is None:
                    waiting.appendleft(submission)
                else:
                    yield submission, outcome

    def _look_for_workers(self) -> list[Submission]:
        """Brings the list of workers up to date, and gives up what was on one that is gone.

        Returns the submissions that have to be graded again because the scheduler was gone.
        """
        given_up: list[Submission] = []
        if time.monotonic() - self._looked < LOOK_EVERY:
            return given_up
        try:
            if self._client.status != "running":
                raise ConnectionError
            known = self._client.scheduler_info()
        except Exception:  # whatever Dask raises when its scheduler is gone
            return self._wait_for_scheduler()
        self._looked = time.monotonic()
        if known["id"] != self.crew.scheduler:  # it was started again, and has forgotten all
            given_up = self._give_up_all()
            self.crew.scheduler = known["id"]
            self.crew.forget_all()
        gone, new = self.crew.update(known)
        for worker in gone:
            for future in [each for each, whose in self._looks.items() if whose is worker]:
                del self._looks[future]
            for future in worker.running:
                self._ended.put((future, "gone"))
        for worker in new:
            self._looks[self._submit(worker, "look()", "")] = worker
        return given_up

    def _begin(self, worker: Worker, submission: Submission) -> SubmissionGrade | None:
        """Sends an order, or returns what becomes of a notebook that cannot be read now."""
        notebook, name = (
            read_notebook(submission.path, submission.student),
            text_of(submission.path.name),
        )
        if not notebook.digest:  # it has no cells either: nothing runs here
            return grade_read(notebook, name, submission.student, self.seed)
        work = order_of(
            notebook, name, submission.student, self.seed, self.limits, self.grader
        )
        order = json.dumps(self._about | {"instance": worker.instance, "work": work})
        future = self._submit(worker, "grade(order)", order)
        worker.running.add(future)
        self._orders[future] = worker, submission, notebook.digest
        return None

    def _submit(self, worker: Worker, call: str, order: str):
        return dask_link.submit(self._client, worker.address, call, order, self._ended.put)

    def _next_outcomes(self) -> Iterator[tuple[Submission, Outcome | None]]:
        """What has ended. None is the outcome of what was stopped through no fault of it."""
        with suppress(queue.Empty):
            future, how = self._ended.get(timeout=LOOK_EVERY / 4)
            while True:
                if future in self._looks:
                    worker = self._looks.pop(future)
                    self.crew.was_looked_at(worker, dask_link.reply_of(future, how))
                elif future in self._orders:
                    yield self._outcome(future, how)
                future, how = self._ended.get_nowait()

    def _outcome(self, future, how: str) -> tuple[Submission, Outcome | None]:
        worker, submission, digest = self._orders.pop(future)
        worker.running.discard(future)
        if how == "gone":
            future.cancel()
            return submission, f"its worker ended, {worker}"
        match dask_link.reply_of(future, how):
            case {"grade": dict(data)}:
                with suppress(KeyError, TypeError, ValueError):
                    grade = SubmissionGrade.from_json(data)
                    if (grade.digest, grade.student) == (digest, submission.student):
                        worker.failures.clear()
                        self.limited_by.add(worker.limited_by)
                        return submission, grade
                return submission, f"what came from its worker cannot be read, {worker}"
            case {"restarted": str(reason)}:
                self.crew.forget(worker)  # to look at what is there now
                self._looked = float("-inf")
                return submission, f"{reason}, {worker}"
            case {"lost": str(reason)}:
                return submission, f"{reason}, on {worker}"
            case {"failed": str(reason)}:
                self.crew.has_failed(worker, submission, reason)
                return submission, f"{reason}, on {worker}"
            case {"other": str(reason)}:
                self.crew.refuse(worker, reason)
        return submission, None

    def _give_up_all(self) -> list[Submission]:
        """Forgets all orders. Returns their submissions."""
        given_up = [submission for _, submission, _ in self._orders.values()]
        with suppress(Exception):  # the scheduler may be gone
            self._client.cancel([*self._orders, *self._looks], force=True)
        self._orders.clear()
        self._looks.clear()
        return given_up

    def _wait_for_scheduler(self) -> list[Submission]:
        """Connects again. Returns the submissions that have to be graded again.

        Raises ConnectionError, with a sentence, if it does not come back.
        """
        given_up = self._give_up_all()
        with suppress(Exception):
            self._client.close(timeout=1.0)
        self.say(f"The scheduler at {self.address} does not answer: waiting for it.")
        deadline = time.monotonic() + crew.COMES_BACK
        while True:
            try:
                self._client = dask_link.connect(self.address, dask_link.CONNECT_LIMIT)
                break
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
        self.say("The scheduler is back.")
        self._looked = float("-inf")
        self.crew.forget_all()
        return given_up
