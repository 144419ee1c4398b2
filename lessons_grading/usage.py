"""How much the processes of a sandbox take, measured from outside."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

from lessons_grading.confinement import WRITABLE

SOCKET_SIZE = 256 << 10  # bytes that can wait in a socket, if the system does not count them
INODE_SIZE = 1 << 10  # bytes that a file takes on top of its content


def tree(pid: int) -> list[psutil.Process]:
    """All descendants of a process, in the order in which they started."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def num_threads(process: psutil.Process) -> int:
    return max(1, _sum_of_lines(f"/proc/{process.pid}/status", ("Threads:",)))


def memory(process: psutil.Process) -> int:
    """Bytes in memory and of page tables, without mapped files."""
    return (
        _sum_of_lines(f"/proc/{process.pid}/status", ("RssAnon:", "RssShmem:", "VmPTE:")) << 10
    )


def share(process: psutil.Process) -> int:
    """Like `memory`, but with only its share of what several processes have in common."""
    return (
        _sum_of_lines(f"/proc/{process.pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
        + _sum_of_lines(f"/proc/{process.pid}/status", ("VmPTE:",))
    ) << 10


def _sum_of_lines(file: str, names: tuple[str, ...]) -> int:
    try:
        return sum(
            int(line.split()[1])
            for line in Path(file).read_text().splitlines()
            if line.startswith(names)
        )
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


def sockets(process: psutil.Process) -> int:
    """Bytes that may wait in the sockets of its sandbox."""
    try:
        words = Path(f"/proc/{process.pid}/net/sockstat").read_text().split()
        pages = sum(int(words[place + 1]) for place, word in enumerate(words) if word == "mem")
        return int(words[2]) * SOCKET_SIZE + pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def disk(processes: list[psutil.Process]) -> int:
    """Bytes of files in their sandbox, or of the files' names.

    bubblewrap cannot limit the files before version 0.7, and can never limit the names.
    """
    for process in reversed(processes):  # the first one is closed to us
        with suppress(OSError):
            disks = [os.statvfs(f"/proc/{process.pid}/root{folder}") for folder in WRITABLE]
            files = sum((disk.f_files - disk.f_ffree) * INODE_SIZE for disk in disks)
            return max(
                files, *((disk.f_blocks - disk.f_bfree) * disk.f_frsize for disk in disks)
            )
    return 0
