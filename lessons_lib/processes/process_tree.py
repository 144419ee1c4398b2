"""Finds and ends all descendants of a process, even in other groups and sessions."""

import os
import resource
import signal
from contextlib import suppress

from lessons_lib.processes import linux

_GROUP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


def adopt_orphans():
    """From now on, this process becomes the parent of any descendant that loses its parent.

    On Linux only (linux.py).
    """
    linux.prctl(linux.SET_CHILD_SUBREAPER, 1)


def split() -> int:
    """Forks like `os.fork`.

    The parent gets no signals to its group until it calls `see_out`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _GROUP_SIGNALS)
    if not (caller := os.fork()):
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return caller


def see_out(caller: int):
    """Waits for the process `caller`, ends the processes it has left, and ends as it did."""
    for number in _GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a signal to the group is meant for the caller
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _GROUP_SIGNALS)
    _, status = os.waitpid(caller, 0)
    with suppress(ChildProcessError):  # no child is left
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                kill(os.getpid())
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def kill(pid: int) -> bool:
    """Kills all descendants of the process `pid` and all of its session, but not `pid` itself.

    A compiler's processes have their own groups. Returns whether there was any process to
    kill.
    """
    # A process whose parent ends during the first look seems to have no parent. So look twice.
    found = family(pid) or family(pid)
    for each in found:
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
    return bool(found)


def family(pid: int) -> set[int]:
    """The living descendants of the process `pid`, and the living processes of its session."""
    import psutil  # installed with ipykernel

    found: set[int] = set()
    with suppress(psutil.Error):
        found.update(
            each.pid
            for each in psutil.Process(pid).children(recursive=True)
            if _is_alive(each)
        )
    for each in psutil.pids():
        with suppress(OSError, psutil.Error):
            if each != pid and os.getsid(each) == pid and _is_alive(psutil.Process(each)):
                found.add(each)
    return found


def _is_alive(process) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
