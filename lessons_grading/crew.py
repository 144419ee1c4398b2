"""The workers that a Dask scheduler has, and which of them may grade."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lessons_grading.submissions import Submission, text_of

COMES_BACK = 600.0  # seconds to wait for a scheduler that was there, or for a worker
MOST_FAILURES = 3  # submissions, one after another; then a worker's disk may be full


class NoWorkers(ConnectionError):
    """Says in a sentence why nobody is there to grade."""


@dataclass(eq=False)
class Worker:
    """One of Dask's workers. It gets work when it was looked at and is not `refused`.

    instance: of its process; "" until it was looked at.
    running: the futures of its orders.
    failures: the submissions that could not be graded there, since one could.
    """

    address: str
    name: str
    threads: int
    instance: str = ""
    refused: str = ""
    limited_by: str = ""
    failures: set = field(default_factory=set)
    running: set = field(default_factory=set)

    def __str__(self):
        named = f"{self.name} ({self.address})"
        return text_of(self.address if self.name == self.address else named)

    @property
    def may_grade(self) -> bool:
        return bool(self.instance) and not self.refused


class Crew:
    """The workers by their addresses.

    course, mistakes: digests that a worker must have.
    sandboxed: whether it must have a sandbox.
    say: is called with a sentence for the person who waits.
    """

    def __init__(
        self, course: str, mistakes: str, sandboxed: bool, say: Callable[[str], object]
    ):
        self.course, self.mistakes, self.sandboxed, self.say = course, mistakes, sandboxed, say
        self.scheduler = ""
        self.workers: dict[str, Worker] = {}
        self._seen, self._said = time.monotonic(), False

    def update(self, scheduler: dict) -> tuple[list[Worker], list[Worker]]:
        """Returns the workers that are gone and those that are new.

        scheduler: what it says of itself.
        """
        there = scheduler["workers"]
        gone = [worker for address, worker in self.workers.items() if address not in there]
        new = [
            Worker(address, str(about.get("name", address)), about["nthreads"])
            for address, about in there.items()
            if address not in self.workers
        ]
        for worker in gone:
            del self.workers[worker.address]
        for worker in new:
            self.workers[worker.address] = worker
        return gone, new

    def forget(self, worker: Worker):
        """If its address is still there, it will be new."""
        if self.workers.get(worker.address) is worker:
            del self.workers[worker.address]

    def forget_all(self):
        self.workers, self._seen = {}, time.monotonic()

    def was_looked_at(self, worker: Worker, reply: dict):
        """Lets it grade, or refuses it by its name.

        reply: from remote.look, or {} if there was none.
        """
        if not reply:  # it is gone, or will be looked at again
            self.forget(worker)
            return
        worker.instance, about = reply.get("instance", ""), reply.get("about", {})
        worker.limited_by = about.get("limited_by", "")
        reason = reply.get("failed") or about.get("problem") or ""
        if not reason and about.get("course") != self.course:
            reason = "it has another version of the course"
        if not reason and about.get("mistakes") != self.mistakes:
            reason = "LESSONS_MISTAKES names other mistakes there"
        if not reason and self.sandboxed:
            reason = about.get("sandbox")
        if reason:
            self.refuse(worker, reason)

    def refuse(self, worker: Worker, reason: str):
        worker.refused = text_of(" ".join(reason.split()))[:500]
        self.say(f"Worker {worker} gets nothing to grade: {worker.refused}")

    def has_failed(self, worker: Worker, submission: Submission, reason: str):
        """Refuses a worker on which one submission after another fails."""
        worker.failures.add(submission)
        if len(worker.failures) == MOST_FAILURES and not worker.refused:
            words = f"{MOST_FAILURES} submissions in a row failed there, the last with"
            self.refuse(worker, f"{words} {reason}")

    def free_worker(self, alone: bool, submission: Submission) -> Worker | None:
        """The one with the most threads that do nothing.

        A worker where this submission could not be graded gets it only if all others failed
        too: else a full disk would be taken for a fault of the submission.

        alone: whether it must have no work at all.
        """
        may = [each for each in self.workers.values() if each.may_grade]
        may = [each for each in may if submission not in each.failures] or may
        free = [each for each in may if len(each.running) < (1 if alone else each.threads)]
        return max(free, key=lambda each: each.threads - len(each.running), default=None)

    def expect_some(self, busy: bool):
        """Raises NoWorkers if waiting for one does not help, or has lasted too long.

        busy: whether an answer of one is still to come.
        """
        if busy or any(worker.may_grade for worker in self.workers.values()):
            self._seen = time.monotonic()
            return
        if self.workers:
            refused = "; ".join(f"{each}: {each.refused}" for each in self.workers.values())
            raise NoWorkers(f"no worker is left that may grade. {refused}")
        if not self._said:
            self.say("The scheduler has no workers: waiting for one.")
            self._said = True
        if time.monotonic() - self._seen > COMES_BACK:
            raise NoWorkers("the scheduler has had no workers for too long")
