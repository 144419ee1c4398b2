"""The engine in a thread of its own. Everything else asks it through a queue."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from paged_attention.engine.engine import Engine
from paged_attention.engine.logprobs import LogprobsWatch, TokenLogprobs
from paged_attention.engine.request import Request, RequestError, SamplingParams

T = TypeVar("T")


class QueueFullError(RuntimeError):
    """There is no room for these requests now, and later there may be."""


class TooManyError(ValueError):
    """More requests at once than the server ever takes."""


class StoppedError(RuntimeError):
    """The engine's thread has ended or is about to."""


@dataclass(frozen=True)
class News:
    """What has become of a request.

    tokens: those that are new.
    reason: why it has ended; None while it goes on.
    error: what the engine raised, if it was that.
    logprobs: of the new tokens, where they were asked for.
    """

    tokens: list[int]
    reason: str | None = None
    error: Exception | None = None
    logprobs: Sequence[TokenLogprobs] = ()


Asking = tuple[list[int], SamplingParams, Callable[[News], None]]


@dataclass
class Served:
    """A request that the thread has, and who hears of it.

    `num_told`: how many of its tokens were told.
    """

    request: Request
    tell: Callable[[News], None]
    num_told: int = 0


class EngineThread:
    """Runs an engine's steps as long as there is work, and waits for more.

    most_requests: that wait or run at once.
    """

    def __init__(self, engine: Engine, most_requests: int):
        self.engine, self.most_requests = engine, most_requests
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._served: dict[int, Served] = {}  # of the thread
        self._ids = itertools.count()
        self._open: set[int] = set()  # of the callers
        self._lock = threading.Lock()
        self._stopping = False
        self._in_step: list[Hashable] = []
        self._watch_schedule()
        self._logprobs = LogprobsWatch(engine)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, asked: Sequence[Asking], num_top: int | None = None) -> list[int]:
        """Puts all of these requests into the queue, or none.

        asked: the prompt, the parameters and a function for each. The function is called in
            the engine's thread; the last call has a reason or an error. A request that the
            engine refuses hears of it so.
        num_top: how many of the likeliest tokens are told with each new one, and its own
            logprob too. None tells of none.
        Returns their numbers, for cancel().
        Raises TooManyError, QueueFullError or StoppedError.
        """
        if len(asked) > self.most_requests:
            raise TooManyError(
                f"these are {len(asked):,} answers at once, and this server takes "
                f"{self.most_requests:,} at most; ask for fewer in a request"
            )
        with self._lock:
            if self._stopping:
                raise StoppedError("the server is ending")
            if len(self._open) + len(asked) > self.most_requests:
                raise QueueFullError(
                    f"{len(self._open):,} answers are waiting or running, and this server "
                    f"takes {self.most_requests:,}; ask again a little later"
                )
            numbers = [next(self._ids) for _ in asked]
            self._open.update(numbers)
            # With the lock: else the thread might end between the two, and never hear of it.
            self._asked.put(partial(self._add, numbers, asked, num_top))
        return numbers

    def cancel(self, number: int) -> None:
        """Ends a request, and frees its blocks. Nothing happens if it has ended."""
        self._asked.put(lambda: self._cancel(number))

    def between_steps(self, function: Callable[[], T]) -> Future[T]:
        """Has a function called in the engine's thread, where no step runs meanwhile.

        Raises StoppedError.
        """
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except Exception as error:
                    future.set_exception(error)

        with self._lock:
            if self._stopping:
                raise StoppedError("the server is ending")
            self._asked.put(call)
        return future

    def stop(self, patience: float = 30.0) -> None:
        """Ends all requests with StoppedError, and the thread after its step."""
        with self._lock:
            self._stopping = True
        self._asked.put(lambda: None)
        self._thread.join(patience)

    def __len__(self) -> int:
        """How many requests wait or run."""
        return len(self._open)

    def _watch_schedule(self) -> None:
        """Notes which requests are in a step: if it fails, these are ended."""
        scheduler = self.engine.scheduler
        schedule, fork = scheduler.schedule, scheduler.fork

        def watched():
            self._in_step = []
            return note(schedule())

        def note(scheduled):
            self._in_step += [request.id for request, _ in scheduled]
            return scheduled

        scheduler.schedule = watched  # type: ignore[method-assign]
        scheduler.fork = lambda scheduled: note(fork(scheduled))  # type: ignore[method-assign]

    def _run(self) -> None:
        while not self._stopping:
            self._do_what_was_asked(wait=not self.engine.scheduler.has_work())
            if not self._stopping and self.engine.scheduler.has_work():
                self._step()
        self._do_what_was_asked(wait=False)
        self._fail(list(self._served), StoppedError("the server is ending"))

    def _do_what_was_asked(self, wait: bool) -> None:
        if wait:
            self._asked.get()()
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()()

    def _step(self) -> None:
        before = self._in_step  # with a host that is a step ahead, their tokens come now
        try:
            self.engine.step()
        except Exception as error:
            self._fail(self._in_step or list(self._served), error)
        in_step = {*before, *self._in_step}
        for number in [each for each in self._served if each in in_step]:
            self._tell(number)

    def _tell(self, number: int) -> None:
        served = self._served[number]
        request = served.request
        new = request.output[served.num_told :]
        served.num_told += len(new)
        if request.reason is not None:
            self._close(number)
        if new or request.reason is not None:
            logprobs = self._logprobs.take(request, len(new))
            served.tell(News(new, request.reason, logprobs=logprobs))

    def _add(self, numbers: list[int], asked: Sequence[Asking], num_top: int | None) -> None:
        """Gives requests to the engine. Neighbours with the same prompt share its blocks."""
        by_prompt = itertools.groupby(zip(numbers, asked), key=lambda pair: pair[1][0])
        for prompt, those in by_prompt:
            pairs = list(those)
            ids: list[Hashable] = [number for number, _ in pairs]
            params = [own for _, (_, own, _) in pairs]
            try:
                requests = self.engine.add_answers(ids, prompt, params)
            except (RequestError, TypeError, ValueError) as error:
                for number, (_, _, tell) in pairs:
                    self._close(number)
                    tell(News([], error=error))
            else:
                for request, (number, (_, _, tell)) in zip(requests, pairs):
                    self._served[number] = Served(request, tell)
                    if num_top is not None:
                        self._logprobs.ask(request, num_top)

    def _cancel(self, number: int) -> None:
        if number in self._served:
            self.engine.cancel(number)
            self._close(number)

    def _fail(self, numbers: Collection[Hashable], error: Exception) -> None:
        for number, served in list(self._served.items()):
            if number in numbers:
                self._cancel(number)
                served.tell(News([], error=error))

    def _close(self, number: int) -> None:
        self._served.pop(number, None)
        with self._lock:
            self._open.discard(number)
