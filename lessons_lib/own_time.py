"""How long a run has taken by itself: the time in which it worked or slept, and not that in which it waited for a processor.

So a limit means the same on a busy machine as on a quiet one, where own time and the clock agree.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds, in which the system counts what a processor does
Observation = tuple[float, bool]  # seconds of processors used so far; whether it works, or would if there were a processor


class Stopwatch:
    """The own time of what `observe` sees, from now on, for one who looks every `every` seconds.

    `observe` gives None where nothing can be seen, and then the clock counts. `clock` gives seconds.
    """

    def __init__(self, observe: Callable[[], Observation | None], every: float = 0.1,
                 clock: Callable[[], float] = time.monotonic):
        self._observe, self._every, self._clock = observe, every, clock
        self.seconds, self._before, self._worked = 0.0, clock(), (observe() or (0.0, True))[0]

    def leave_out(self, seconds: float):
        """What has just passed, since the last look, does not count."""
        self._before += seconds

    def look(self) -> float:
        """Seconds of own time since the start. Two threads that work at once count as one."""
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
        self._worked = max(self._worked + at_work, worked - 2 * _TICK)  # a tick may be counted late
        # Asleep at this look, it has slept or worked since the last one. Should that one be long ago, because the looker
        # had no processor, then nobody knows.
        asleep = 0.0 if is_awake else min(elapsed, 2 * self._every)
        self.seconds += max(asleep, at_work)
        return self.seconds


def observe_session(session: int) -> Observation | None:
    """All processes of a session (os.setsid), with the children of theirs that have ended. None on other systems than Linux."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks, is_awake = 0, False
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):  # it is no process, or has ended meanwhile
            if os.getsid(int(entry)) == session:
                ticks += sum(map(int, _fields(f"/proc/{entry}/stat")[11:15]))
                threads = os.listdir(f"/proc/{entry}/task")
                is_awake = is_awake or any(_is_awake(_fields(f"/proc/{entry}/task/{thread}/stat")) for thread in threads)
    return ticks * _TICK, is_awake


def observe_thread(thread: int) -> Observation | None:
    """A thread of this process, by its native_id. None where it has ended, and on other systems than Linux."""
    try:
        fields = _fields(f"/proc/self/task/{thread}/stat")
    except OSError:
        return None
    return sum(map(int, fields[11:13])) * _TICK, _is_awake(fields)


def own_clock() -> float:
    """Seconds that pass for this process: by the clock, without those in which its main thread waited for a processor."""
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1])  # nanoseconds
    except (OSError, IndexError):
        waited = 0
    return time.monotonic() - waited / 1e9


def _fields(file: str) -> list[str]:
    """What comes after the name, which may hold anything: the state, then numbers (proc(5))."""
    return Path(file).read_text(errors="replace").rpartition(")")[2].split()


def _is_awake(fields: list[str]) -> bool:
    return fields[0] in ("R", "D")  # it runs or waits for a processor, or it waits for a disk
