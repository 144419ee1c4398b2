"""Functions of Linux alone. The table says what other systems do instead.

| on Linux | elsewhere |
|---|---|
| the time at work of each thread of a process | a run's time counts by the clock |
| orphans become children of the process that started them | an orphan with a session stays |
| a limit on a process's data | an endless list ends with the run's time |
| the processor's name and features in /proc/cpuinfo | Python's short name for it |
"""

import ctypes
from contextlib import suppress
from pathlib import Path

# for prctl(2)
SET_PDEATHSIG, SET_DUMPABLE, SET_CHILD_SUBREAPER = 1, 4, 36


def has_proc() -> bool:
    """Whether /proc shows the processes."""
    return Path("/proc/self/stat").exists()


def fields(file: str) -> list[str]:
    """The fields of a `stat` file of /proc after the name: the state, then numbers (proc(5)).

    A name may hold anything. Raises OSError if the process has ended.
    """
    return Path(file).read_text(errors="replace").rpartition(")")[2].split()


def ran_and_waited(folder: str) -> tuple[float | None, float | None]:
    """Seconds that a thread ran, and that it waited for a processor; None if unknown.

    folder: of the thread, or of a process for its main thread.
    """
    with suppress(OSError, ValueError):
        ran, waited, _ = map(int, Path(f"{folder}/schedstat").read_text().split())
        return ran / 1e9, waited / 1e9  # they are in nanoseconds
    return None, None


def data_pages() -> int:
    """Pages of this process's data. Raises OSError where there is no /proc."""
    return int(Path("/proc/self/statm").read_text().split()[5])


def prctl(option: int, value: int) -> None:
    """Sets a property of this process. Does nothing on other systems."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def about_processor(*names: str) -> str:
    """The first line of /proc/cpuinfo that begins with one of the names, or ""."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(names)), "")
