"""All processes that come from one, whatever parents, groups and sessions they have by now."""

import os
import resource
import signal
from contextlib import suppress

from lessons_lib.processes import linux

_GROUP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


def adopt_orphans():
    """From now on, a descendant of this process that loses its parent becomes our child.

    On Linux only (linux.py).
    """
    linux.prctl(linux.SET_CHILD_SUBREAPER, 1)


def split() -> int:
    """Forks, as `os.fork` does. The parent gets no signals to the group until `see_out`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _GROUP_SIGNALS)
    if not (caller := os.fork()):
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return caller


def see_out(caller: int):
    """Waits for the process `caller`, ends what it has left, and then ends in the same way."""
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

    A compiler's processes have their own groups. Returns whether there was anything to kill.
    """
    # A process whose parent ends just while we look has no parent in that look.
    found = family(pid) or family(pid)
    for each in found:
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
    return bool(found)


def family(pid: int) -> set[int]:
    """All that live of the descendants and of the session of the process `pid`."""
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
