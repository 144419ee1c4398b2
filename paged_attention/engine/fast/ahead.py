"""An engine in which the host is a step ahead of the device."""

from collections.abc import Iterator
from contextlib import contextmanager

from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.reserve_blocks import append_to_own_block
from paged_attention.engine.request import Request
from paged_attention.engine.scheduler import Scheduler

PENDING = -1  # a token that only the device knows yet

Scheduled = list[tuple[Request, int]]


class AheadScheduler(Scheduler):
    """Offers the blocks of a prompt as soon as they have their places in the pool.

    Many requests that bring the same prefix at once then compute it once. In each layer a step
    writes all keys and values before its attention reads any. So a request can read blocks
    that another one fills in the same step.
    """

    def schedule(self) -> Scheduled:
        self.prefix_cache.promised.clear()
        self.entries = self.manager.table.cpu.numpy()  # made once, not for each request
        return super().schedule()

    def make_room(self, request: Request, num_tokens: int) -> bool:
        has_room = append_to_own_block(self.manager, self.entries, request.id, num_tokens)
        has_room = has_room or super().make_room(request, num_tokens)
        if has_room and request.tokens[-1] != PENDING:  # then all tokens are known
            self.prefix_cache.promise(request, request.num_computed + num_tokens)
        return has_room


class AheadEngine(Engine):
    """Schedules a step while the device computes the one before.

    A request's end shows one step late. What the later step computed for it is dropped. So is
    the token of a request that was preempted meanwhile: it will be drawn once more, and will
    be the same.

    `in_flight`: the requests of the step that the device computes, and their next tokens on
        the way.
    """

    scheduler_class = AheadScheduler
    in_flight: tuple | None = None
    gave_way: frozenset[Request] = frozenset()  # requests of the late step

    def step(self) -> Scheduled:
        """Launches a step, and completes the one before. Otherwise as Engine.step."""
        before: Scheduled = []
        try:
            late = self.in_flight
            with self.as_if_complete(late):
                self.in_flight = self.launch()
            if late is None:
                return []
            before = self._lengths(late[0])
            return self.complete_late(*late)
        except BaseException:
            self._take_back(before)
            raise

    def _lengths(self, scheduled: Scheduled) -> Scheduled:
        """Each request that still runs, with its number of tokens.

        In CPython 3.12 and later, Ctrl-C in a comprehension's condition would miss an `except`
        of the same function: so this is not in `step`.
        """
        return [(r, len(r.tokens)) for r, _ in scheduled if self.still_runs(r)]

    def launch(self) -> tuple | None:
        """Schedules a step and has the device compute it, without waiting for it."""
        scheduled = self.scheduler.schedule()
        if scheduled:
            scheduled = [*scheduled, *self.scheduler.fork(scheduled)]
            tokens = self.runner.run(scheduled)
            if self.history is not None:
                self.history(self, scheduled)
            return scheduled, tokens
        if self.scheduler.has_work() and self.in_flight is None:
            raise self._nothing_scheduled()
        return None

    def postprocess(self, scheduled: Scheduled, tokens) -> Scheduled:
        # One conversion for all: a tensor would make a tensor for each of its numbers.
        return super().postprocess(scheduled, tokens.tolist())

    def complete_late(self, scheduled: Scheduled, tokens) -> Scheduled:
        """Completes a step after the next one was launched.

        A request of the step may not run any more: it has ended, or it has given its blocks
        back. Nothing of this step is for it: it keeps its tokens and its num_computed. The
        others complete as in `Engine.step`. If none is left, it does not wait for the device.

        self.still_runs(request) says whether a request runs. self._complete(scheduled, tokens)
        completes a step: it wants one token for each of its requests, in their order.

        scheduled: (request, num_tokens) for each request of the step.
        tokens: the step's tokens on their way. tokens.wait() waits until they are there, and
            returns them, int64 (len(scheduled),).
        Returns what `_complete` returns: (request, token) for each request with a new token.
        """
        # BEGIN SOLUTION 10.7
        left = [
            index for index, (request, _) in enumerate(scheduled) if self.still_runs(request)
        ]
        if not left:
            return []
        return self._complete([scheduled[index] for index in left], tokens.wait()[left])
        # END SOLUTION

    @contextmanager
    def as_if_complete(self, late: tuple | None) -> Iterator[None]:
        """Lets the scheduler see requests as they will be when the late step is complete."""
        self.gave_way = frozenset()
        scheduled = [pair for pair in late[0] if self.still_runs(pair[0])] if late else []
        if late and len(scheduled) < len(late[0]):
            # Preempted since the last step. If the next step starts it again, the late token
            # is not for it.
            self.gave_way = frozenset(dict(late[0])) - frozenset(dict(scheduled))
        expect_tokens(scheduled)
        yield
        for request, num_tokens in scheduled:
            remove_pending(request)
            if self.still_runs(request):  # else it was preempted, and has computed nothing
                request.num_computed -= num_tokens

    def still_runs(self, request: Request) -> bool:
        """Whether a request of the late step has neither ended nor given its blocks back."""
        runs = request.reason is None and request.id in self.manager.sequences
        return runs and request not in self.gave_way

    def _start_over(self, before: Scheduled) -> None:
        self.in_flight = None
        for request in self.requests.values():
            remove_pending(request)
        super()._start_over(before)


def expect_tokens(scheduled: Scheduled) -> None:
    """Changes requests to what they will be when a step is complete that is being computed.

    Each request has computed num_tokens more tokens, and counts them in its num_computed. A
    request gets PENDING as its next token if it will get a token and will go on after it:

    - As in `postprocess`, it gets a token only if all of its tokens are computed then.
    - With its last token, the max_new_tokens-th, it ends. Then there is nothing to feed, so it
      gets no PENDING.
    - It may also end with the model's end token. But nobody knows that token yet, so this does
      not count here.

    scheduled: (request, num_tokens) for each request of the step.
    """
    # BEGIN SOLUTION 10.6
    for request, num_tokens in scheduled:
        request.num_computed += num_tokens
        is_last = len(request.output) + 1 == request.params.max_new_tokens
        if not request.num_uncomputed and not is_last:
            request.tokens.append(PENDING)
    # END SOLUTION


def remove_pending(request: Request) -> None:
    if request.tokens[-1] == PENDING:
        request.tokens.pop()
