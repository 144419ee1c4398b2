"""The time that a run has taken itself: working or sleeping, not waiting for a processor.

So a limit means the same on a busy machine and on a quiet one. On a quiet machine this is the
time of the clock.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds; the system counts processor time in ticks
# Processor seconds used so far, and whether it works or would work if it had a processor.
Observation = tuple[float, bool]


class Stopwatch:
    """The own time of what `observe` sees, from now on.

    observe: returns None if nothing can be seen; clock time counts then.
    every: seconds between two looks.
    clock: returns seconds.
    """

    def __init__(
        self,
        observe: Callable[[], Observation | None],
        every: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._observe, self._every, self._clock = observe, every, clock
        self.seconds, self._before, self._worked = 0.0, clock(), (observe() or (0.0,))[0]

    def leave_out(self, seconds: float):
        """Leaves out seconds that have passed since the last look."""
        self._before += seconds

    def look(self) -> float:
        """Seconds of own time since the start. Two threads at work at once count as one."""
        now = self._clock()
        elapsed = now - self._before
        if elapsed < self._every / 2:
            return self.seconds
        self._before, seen = now, self._observe()
        if seen is None:
            self.seconds += elapsed
            return self.seconds
        worked, is_awake = seen
        at_work = max(0.0, min(elapsed, worked - self._worked))
        # a tick may be counted late
        self._worked = max(self._worked + at_work, worked - 2 * _TICK)
        # If it is asleep now, it has slept or worked since the last look. If that was long
        # ago, because this process had no processor itself, we cannot know.
        asleep = 0.0 if is_awake else min(elapsed, 2 * self._every)
        self.seconds += max(asleep, at_work)
        return self.seconds


def observe_session(session: int) -> Observation | None:
    """All processes of a session (os.setsid), with ended children. None if not on Linux."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks, is_awake = 0, False
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):  # not a process, or it has just ended
            if os.getsid(int(entry)) == session:
                ticks += sum(map(int, _fields(f"/proc/{entry}/stat")[11:15]))
                threads = os.listdir(f"/proc/{entry}/task")
                is_awake = is_awake or any(
                    _is_awake(_fields(f"/proc/{entry}/task/{thread}/stat"))
                    for thread in threads
                )
    return ticks * _TICK, is_awake


def observe_thread(thread: int) -> Observation | None:
    """A thread of this process, by its native_id. None if it has ended, or not on Linux."""
    try:
        fields = _fields(f"/proc/self/task/{thread}/stat")
    except OSError:
        return None
    return sum(map(int, fields[11:13])) * _TICK, _is_awake(fields)


def own_clock() -> float:
    """Clock seconds, without the time in which the main thread waited for a processor."""
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1])  # nanoseconds
    except (OSError, IndexError):
        waited = 0
    return time.monotonic() - waited / 1e9


def _fields(file: str) -> list[str]:
    """The state, then numbers (proc(5)). The name before them may hold anything."""
    return Path(file).read_text(errors="replace").rpartition(")")[2].split()


def _is_awake(fields: list[str]) -> bool:
    return fields[0] in ("R", "D")  # running, waiting for a processor, or for a disk
