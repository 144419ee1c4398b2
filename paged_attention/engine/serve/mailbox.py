"""From the engine's thread to the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Calls functions in the event loop's thread, in the order in which they came.

    Waking the loop takes longer than most of these calls. So all that come before it wakes
    share one wake-up, as the new tokens of a step do.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._is_woken = loop, False
        self._calls: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None]) -> None:
        """May be called in any thread."""
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # first, so that what comes from now on wakes it again
        while self._calls:
            self._calls.popleft()()
