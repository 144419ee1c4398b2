"""An engine in which the host is a step ahead of the device."""

from collections.abc import Iterator
from contextlib import contextmanager

from paged_attention.engine.engine import Engine
from paged_attention.engine.request import Request

PENDING = -1  # a token that only the device knows yet

Scheduled = list[tuple[Request, int]]


class AheadEngine(Engine):
    """Schedules a step while the device computes the one before.

    A request's end shows one step late. What the later step computed for it is dropped. So is
    the token of a request that was preempted meanwhile: it will be drawn once more, and will
    be the same.

    `in_flight`: the requests of the step that the device computes, and their next tokens on
        the way.
    """

    in_flight: tuple | None = None

    def step(self) -> Scheduled:
        """Launches a step, and completes the one before. Otherwise as Engine.step."""
        before: Scheduled = []
        try:
            late = self.in_flight
            with self._as_if_complete(late):
                self.in_flight = self._launch()
            return self._complete_late(late, before)
        except BaseException:
            self.in_flight = None
            self._take_back(before)
            raise

    def _launch(self) -> tuple | None:
        scheduled = self.scheduler.schedule()
        if scheduled:
            tokens = self.runner.run(scheduled)
            if self.history is not None:
                self.history(self, scheduled)
            return scheduled, tokens
        if self.scheduler.has_work() and self.in_flight is None:
            raise self._nothing_scheduled()
        return None

    def _complete_late(self, late: tuple | None, before: Scheduled) -> Scheduled:
        """Completes a step for those of its requests that still run.

        before: gets these requests, each with its number of tokens.
        """
        scheduled, tokens = late or ([], None)
        left = [index for index, (request, _) in enumerate(scheduled) if self._runs(request)]
        if tokens is None or not left:
            return []
        before += [(scheduled[index][0], len(scheduled[index][0].tokens)) for index in left]
        return self._complete([scheduled[index] for index in left], tokens.wait()[left])

    @contextmanager
    def _as_if_complete(self, late: tuple | None) -> Iterator[None]:
        """Lets the scheduler see the requests as they will be when the late step is complete.

        Their next tokens are PENDING. A request with its last token has nothing to compute.
        """
        scheduled = [pair for pair in late[0] if self._runs(pair[0])] if late else []
        for request, num_tokens in scheduled:
            request.num_computed += num_tokens
            most = len(request.prompt) + request.params.max_new_tokens
            if not request.num_uncomputed and len(request.tokens) + 1 < most:
                request.tokens.append(PENDING)
        yield
        for request, num_tokens in scheduled:
            remove_pending(request)
            if self._runs(request):  # else it was preempted, and has computed nothing
                request.num_computed -= num_tokens

    def _runs(self, request: Request) -> bool:
        """Whether a request has neither ended nor given its blocks back."""
        return request.reason is None and request.id in self.manager.sequences

    def _take_back(self, before: Scheduled) -> None:
        for request in self.requests.values():
            remove_pending(request)
        super()._take_back(before)


def remove_pending(request: Request) -> None:
    if request.tokens[-1] == PENDING:
        request.tokens.pop()
