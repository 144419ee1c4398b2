"""Grades on the workers of a Dask scheduler: `--scheduler tcp://…`.

Dask keeps the list of workers, gives each as many orders as it has threads, and gives an order
to another worker where one is gone. A plugin looks at each worker, also at one that comes
later, and gives it a resource if it may grade. The orders ask for this resource.

Each worker imports this file, which therefore needs no PyTorch.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import distributed

from lessons_grading.grading_process import GradingProcesses, Workers
from lessons_grading.sandbox import Limits
from lessons_grading.store import course_digest, mistakes_digest
from lessons_grading.submissions import text_of

CONNECT_LIMIT = 15.0  # seconds until a scheduler counts as not there
WAIT_LIMIT = 600.0  # seconds to wait for a worker
MOST_AHEAD = 2  # orders for each thread, so that none waits for the next
# Dask sends a function by its name, and its scheduler would look for it too. Python's own
# `eval` is everywhere; the course is needed on the workers only.
_GRADE = "__import__('distributed').get_worker().plugins[name].processes.grade(order, seconds)"


class Grading(distributed.WorkerPlugin):
    """On each worker: looks whether it may grade, and keeps the processes that do.

    A worker that may grade gets the resource `name`, once for each of its threads. What the
    plugin says of the worker is an event of the topic `name`.
    """

    def __init__(self, name: str, sandboxed: bool):
        self.name = name
        ours = {"course": course_digest(), "mistakes": mistakes_digest()}
        question = ours | {"type": "Question", "sandboxed": sandboxed}
        self.question = json.dumps(question).encode()

    async def setup(self, worker):
        self.processes = GradingProcesses()
        reply = json.loads(await asyncio.to_thread(self.processes.grade, self.question, 0.0))
        refused = reply.get("failed") or reply["refused"]
        if not refused:
            await worker.set_resources(**{self.name: worker.state.nthreads})
        about = {"worker": worker.address, "refused": refused}
        worker.log_event(self.name, about | {"limited_by": reply.get("limited_by", "")})

    def teardown(self, worker):
        self.processes.close()


@contextmanager
def dask_workers(
    address: str, limits: Limits, say: Callable[[str], object], limited_by: set[str]
) -> Iterator[Workers]:
    """The workers of the scheduler at `address`.

    say: is called with a sentence for the person who waits.
    limited_by: gets what keeps the limits on the workers.
    Raises ConnectionError, with a sentence, if no scheduler is there.
    """
    logging.disable()  # what goes wrong is told in a sentence below
    try:
        client = distributed.Client(address, timeout=CONNECT_LIMIT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {address} ({error})") from None
    name = f"lessons-grading-{secrets.token_hex(8)}"
    crew = _Crew(client, name, say, limited_by)
    executor = client.get_executor(pure=False, resources={name: 1}, retries=0)

    def submit(order: bytes) -> Future:
        call = {"name": name, "order": order, "seconds": limits.total_seconds}
        return executor.submit(eval, _GRADE, call)

    try:
        client.subscribe_topic(name, crew.hear)
        try:
            client.register_plugin(Grading(name, limits.sandboxed), name=name)
        except Exception as error:  # of a worker on which the course is not, or is older
            say(f"A worker gets nothing to grade: {text_of(str(error))[:500]}")
        yield Workers(submit, crew.room)
    finally:
        with suppress(Exception):  # the scheduler may go just then
            if client.status == "running":
                client.unregister_worker_plugin(name)
        with suppress(Exception):
            client.close(timeout=5.0)


@dataclass
class _Crew:
    """All workers that are known. A worker that may grade has the resource `name`."""

    client: distributed.Client
    name: str
    say: Callable[[str], object]
    limited_by: set[str]
    refused: dict[str, str] = field(default_factory=dict)  # reasons, by address
    seen: float = field(default_factory=time.monotonic)  # when there was a worker last
    said: bool = False

    def hear(self, event: tuple):
        """Takes what the plugin says of a worker."""
        match event[1]:
            case {"worker": str(worker), "refused": str(reason)} if reason:
                self.refused[worker] = text_of(" ".join(reason.split()))[:500]
                named = text_of(worker)
                self.say(f"Worker {named} gets nothing to grade: {self.refused[worker]}")
            case {"limited_by": str(words)}:
                self.limited_by.add(words)

    def room(self) -> int:
        """How many orders they may have. Raises ConnectionError if no worker will come."""
        if self.client.status != "running":
            raise ConnectionError("the Dask scheduler is gone")
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        threads = sum(about["resources"].get(self.name, 0) for about in workers.values())
        if threads:
            self.seen = time.monotonic()
        elif workers and {*workers} <= {*self.refused}:
            reasons = "; ".join(f"{text_of(each)}: {self.refused[each]}" for each in workers)
            raise ConnectionError(f"no worker is left that may grade. {reasons}")
        elif time.monotonic() - self.seen > WAIT_LIMIT:
            raise ConnectionError("the scheduler has had no workers for too long")
        elif not workers and not self.said:
            self.said = True
            self.say("The scheduler has no workers: waiting for one.")
        return MOST_AHEAD * max(1, int(threads))
