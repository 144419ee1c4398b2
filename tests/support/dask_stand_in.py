"""A stand-in for Dask: a scheduler, its workers and their replies, without any waiting."""

import json
import queue
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dask_cluster import ALL_RIGHT
from lessons_grading import dask_link
from lessons_grading.cluster import Cluster
from lessons_grading.grades import SubmissionGrade
from lessons_grading.digests import mistakes_digest

NEVER = object()  # a reply that does not come


class Future:
    def __init__(self, reply):
        self.reply, self.cancelled, self.called = reply, False, None
        self.status = "error" if isinstance(reply, Exception) else "finished"
        if reply is None:
            self.status = "cancelled"

    def add_done_callback(self, call):
        self.called = call
        if self.reply is not NEVER:
            call(self)

    def ends_with(self, reply):
        self.__init__(reply)

    def result(self, timeout):
        return self.reply

    def exception(self, timeout):
        return self.reply

    def cancel(self):
        self.cancelled = True


class Dask:
    """A scheduler with its client. `reply(worker, order)` says what becomes of an order."""

    def __init__(self, *workers: str, threads: int = 1):
        self.id, self.status, self.threads = "first", "running", threads
        self.workers = list(workers)
        self.reply = lambda worker, order: graded_by(order)
        self.about = {
            "course": "the course",
            "mistakes": mistakes_digest(),
            "limited_by": "the kernel",
        }
        self.orders, self.looks, self.futures = [], [], []
        self.ran, self.cancelled, self.closed, self.asked = [], [], 0, []
        self.during, self.looks_left = lambda: None, [*range(2_000)]

    def scheduler_info(self):
        self.during() if self.looks_left.pop() else pytest.fail("it asks for ever")
        about = {"nthreads": self.threads}
        return {
            "id": self.id,
            "workers": {f"tcp://{name}": about | {"name": name} for name in self.workers},
        }

    def submit(self, function, words, local, key, **asked):
        assert function is eval
        self.asked.append((key, asked))
        (address,) = asked["workers"]
        name = address.removeprefix("tcp://")
        if words == f"{dask_link._REMOTE}.look()":
            self.looks.append(name)
            reply = json.dumps({"instance": f"instance of {name}", "about": self.about})
        else:
            assert words == f"{dask_link._REMOTE}.grade(order)"
            order = json.loads(local["order"])
            self.orders.append((name, order))
            reply = self.reply(name, order)
        self.futures.append(Future(reply))
        return self.futures[-1]

    def run(self, function, words, **asked):
        self.ran.append((function, words, asked))

    def cancel(self, futures, force):
        self.cancelled.append((futures, force))

    def close(self, timeout):
        self.closed += 1

    def tried(self) -> list[tuple[str, str]]:
        return [(name, order["work"]["student"]) for name, order in self.orders]


def graded_by(order: dict, **other) -> str:
    work = order["work"]
    grade = SubmissionGrade(
        work["student"], work["name"], work["notebook"][0], "00", (ALL_RIGHT,), (), 0.1
    )
    return json.dumps({"grade": grade.to_json() | other})


class Replies(deque):
    """The queue of what has ended. wait: is called with the seconds to wait for more."""

    def __init__(self, wait: Callable[[float], object]):
        self.put, self.wait = self.append, wait

    def get(self, timeout: float):
        if not self:
            self.wait(timeout)
        return self.get_nowait()

    def get_nowait(self):
        if not self:
            raise queue.Empty
        return self.popleft()


def queue_that_waits(wait: Callable[[float], object]) -> SimpleNamespace:
    return SimpleNamespace(SimpleQueue=lambda: Replies(wait), Empty=queue.Empty)


def outcomes(workers: Cluster, submissions, alone=False) -> dict:
    found = {}
    for submission, outcome in workers.outcomes(submissions, alone):
        assert submission.student not in found
        found[submission.student] = outcome
    return found
