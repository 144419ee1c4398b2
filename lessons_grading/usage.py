"""How much the processes of a sandbox take, measured from outside."""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from lessons_grading.confinement import WRITABLE

INODE_SIZE = 1 << 10  # bytes that a file takes on top of its content


def tree(pid: int) -> list[psutil.Process]:
    """All descendants of a process, in the order in which they started."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def num_threads(process: psutil.Process) -> int:
    return max(1, *_numbers(process, "status", 1, "Threads:"))


def memory(process: psutil.Process) -> int:
    """Bytes in memory or swapped out, and of page tables, without mapped files."""
    return (
        sum(_numbers(process, "status", 1, "RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")) << 10
    )


def share(process: psutil.Process) -> int:
    """Like `memory`, but with only its share of what several processes have in common."""
    found = sum(_numbers(process, "smaps_rollup", 1, "Pss_Anon:", "Pss_Shmem:", "SwapPss:"))
    tables = sum(_numbers(process, "status", 1, "VmPTE:"))
    return (found + tables) << 10 if found else memory(process)


def sockets(process: psutil.Process) -> int:
    """Bytes that may wait in the sockets of its sandbox: no more than their largest buffers.

    The system counts the bytes that do wait only for the whole machine.
    """
    used, tcp4 = _numbers(process, "net/sockstat", 2, "sockets:", "TCP:")
    (tcp6,) = _numbers(process, "net/sockstat6", 2, "TCP6:")
    plain, largest = _buffers()
    return max(0, used - tcp4 - tcp6) * plain + (tcp4 + tcp6) * largest


def _numbers(process: psutil.Process, file: str, place: int, *names: str) -> list[int]:
    """The number in each of these lines of a file in /proc, or 0 if there is none.

    place: of the number in its line.
    """
    found = dict.fromkeys(names, 0)
    with suppress(OSError, ValueError, IndexError):  # it has ended, or has no such lines
        for words in map(
            str.split, Path(f"/proc/{process.pid}/{file}").read_text().splitlines()
        ):
            if words[0] in names:
                found[words[0]] = int(words[place])
    return [*found.values()]


@cache
def _buffers() -> tuple[int, int]:
    """Bytes of both buffers of a socket: as each begins, and as TCP lets them grow."""
    net = Path("/proc/sys/net")
    plain = [int((net / f"core/{way}mem_default").read_text()) for way in "rw"]
    tcp = [int((net / f"ipv4/tcp_{way}mem").read_text().split()[2]) for way in "rw"]
    return sum(plain), max(sum(plain), sum(tcp))


def disk(processes: list[psutil.Process]) -> int:
    """Bytes of files in their sandbox, or of the files' names.

    bubblewrap cannot limit the files before version 0.7, and can never limit the names.
    """
    for process in reversed(processes):  # the first process is closed to us
        with suppress(OSError):
            disks = [os.statvfs(f"/proc/{process.pid}/root{folder}") for folder in WRITABLE]
            files = sum((disk.f_files - disk.f_ffree) * INODE_SIZE for disk in disks)
            return max(
                files, *((disk.f_blocks - disk.f_bfree) * disk.f_frsize for disk in disks)
            )
    return 0
