"""All processes that come from one: a run ends them with itself, whichever parents, groups and sessions they have by then."""

import ctypes
import os
import resource
import signal
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """From now on, a process that comes from this one and has lost its parent becomes our child, whatever its session is. Only
    on Linux; elsewhere what has a session of its own and no parent any more goes on."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def see_out(caller: int):
    """Waits until the process `caller` has ended, ends all that it has left, and then ends as it did."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # what it sends to its group is for the caller
    _, status = os.waitpid(caller, 0)
    with suppress(ChildProcessError):  # none is left
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
    """Kills all that come from the process `pid`, and all that are in its session: a compiler's processes have groups of their
    own. Not itself. Returns whether there was any."""
    import psutil  # comes with ipykernel

    family = set()
    with suppress(psutil.Error):
        family.update(each.pid for each in psutil.Process(pid).children(recursive=True) if _is_alive(each))
    for each in psutil.pids():
        with suppress(OSError, psutil.Error):
            if each != pid and os.getsid(each) == pid and _is_alive(psutil.Process(each)):
                family.add(each)
    for each in family:
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
    return bool(family)


def _is_alive(process) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
