"""Measures a run's own time: it works or sleeps, and does not wait for a processor.

So a time limit means the same on a busy machine and on a quiet one. On a quiet machine, own
time is clock time. On a busy one, the waiting that the system reports is left out. It does not
report the waiting of processes that ended between two looks, so that waiting counts. macOS
reports no waiting, so there the limit is one of clock time.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from lessons_lib.processes import linux

_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds; the system counts processor time in ticks


class Thread(NamedTuple):
    """One thread, as the system shows it.

    is_ready: whether it works, or would work if it had a processor or a disk.
    ran, waited: seconds on a processor, and seconds of waiting for a processor. None if the
        system does not show them.
    """

    is_ready: bool
    ran: float | None
    waited: float | None

    def ran_since(self, before: "Thread | None") -> float:
        return (self.ran or 0.0) - ((before.ran or 0.0) if before else 0.0)

    def waited_since(self, before: "Thread | None", elapsed: float) -> float:
        """Seconds of waiting for a processor. The system counts a wait when it is over."""
        if self.waited is None:
            return elapsed if self.is_ready else 0.0
        if before and before.is_ready and self.is_ready and self.ran == before.ran:
            return elapsed
        return self.waited - ((before.waited or 0.0) if before else 0.0)


# The processor seconds used so far, and the threads that exist now, by their number.
Observation = tuple[float, dict[int, Thread]]


class Stopwatch:
    """Counts the own time of the processes that `observe` shows, from now on.

    observe: returns an Observation, or None if the system shows nothing. Then clock time
        counts.
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
        self.seconds, self._before = 0.0, clock()
        self._worked, self._threads = observe() or (0.0, {})

    def leave_out(self, seconds: float):
        """Leaves out seconds that have passed since the last look."""
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
        worked, threads = seen
        # The system may not show the work of a thread that ended between two looks.
        ran = sum(
            thread.ran_since(self._threads.get(number)) for number, thread in threads.items()
        )
        at_work = max(0.0, min(elapsed, max(worked - self._worked, ran)))
        # A tick may be counted late. And the work of a process is lost if it ends between two
        # looks.
        late = 2 * _TICK
        self._worked = min(max(self._worked + at_work, worked - late), worked + late)
        waited = max(
            (
                thread.waited_since(self._threads.get(number), elapsed)
                for number, thread in threads.items()
            ),
            default=0.0,
        )
        self._threads = threads
        self.seconds += max(at_work, elapsed - waited)
        return self.seconds


def observe_session(session: int) -> Observation | None:
    """All processes of a session (os.setsid), and their ended children.

    None if not on Linux.
    """
    if not linux.has_proc():
        return None
    return observe_processes(_of_session(session))


def _of_session(session: int) -> Iterable[int]:
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):  # it is not a process, or has just ended
            if os.getsid(int(entry)) == session:
                yield int(entry)


def observe_processes(processes: Iterable[int]) -> Observation:
    """These processes, and those of their children that have ended and were waited for."""
    ticks, threads = 0, {}
    for process in processes:
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            ticks += sum(map(int, linux.fields(f"/proc/{process}/stat")[11:15]))
            for number in os.listdir(f"/proc/{process}/task"):
                threads[int(number)] = _thread(f"/proc/{process}/task/{number}")
    return ticks * _TICK, threads


def own_clock() -> float:
    """Clock seconds, without the time in which the main thread waited for a processor."""
    return time.monotonic() - (linux.ran_and_waited("/proc/self")[1] or 0.0)


def _thread(folder: str) -> Thread:
    is_ready = linux.fields(f"{folder}/stat")[0] in ("R", "D")
    return Thread(is_ready, *linux.ran_and_waited(folder))
