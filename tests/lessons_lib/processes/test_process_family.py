"""Which processes come from one, and how it ends after them. All of them are stand-ins, and no
test here sends a signal.
"""

import signal
import sys
from types import SimpleNamespace

import pytest

from lessons_processes import process_family

GROUP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
MOST_CALLS = 1_000  # whatever does more of them would never end
SELF = 500  # the process of the test


class Left(BaseException):
    """The process would have ended here."""


class Unseen(Exception):
    pass


class System:
    """A stand-in for the modules `os`, `signal` and `resource`."""

    SIG_IGN, SIG_DFL = signal.SIG_IGN, signal.SIG_DFL
    SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK = "block", "unblock", "set"
    SIGKILL, WNOHANG, RLIMIT_CORE = signal.SIGKILL, 1, "core"

    def __init__(self):
        self.blocked, self.handlers, self.killed, self.limits = {signal.SIGINT}, {}, [], {}
        self.sessions, self.forks_to, self.status = {}, 0, 0
        self.children, self.calls = [], 0  # (process, status) each, or None: it still runs
        self.handlers_at_wait = None

    def pthread_sigmask(self, how, signals):
        before = set(self.blocked)
        self.blocked = {
            "block": before | set(signals),
            "unblock": before - set(signals),
            "set": set(signals),
        }[how]
        return before

    def signal(self, number, handler):
        if number == signal.SIGKILL:
            raise OSError("nobody handles it")
        self.handlers[number] = handler

    def fork(self):
        return self.forks_to

    def getpid(self):
        return SELF

    def getsid(self, process):
        if process not in self.sessions:
            raise ProcessLookupError
        return self.sessions[process]

    def kill(self, process, number):
        self.killed.append((process, number))
        if process not in (SELF, *self.sessions):
            raise ProcessLookupError

    def waitpid(self, process, flags):
        """Of `caller` = 77 its status; of any (-1), the next of `children`."""
        self.calls += 1
        assert self.calls < MOST_CALLS
        if process == 77:
            assert flags == 0
            self.handlers_at_wait = dict(self.handlers), set(self.blocked)
            return 77, self.status
        assert (process, flags) == (-1, self.WNOHANG)
        if not self.children:
            raise ChildProcessError
        return self.children.pop(0) or (0, 0)

    def setrlimit(self, kind, limits):
        self.limits[kind] = limits

    def _exit(self, code):
        raise Left(code)

    @staticmethod
    def WIFSIGNALED(status):
        return status < 0

    @staticmethod
    def WTERMSIG(status):
        return -status

    @staticmethod
    def waitstatus_to_exitcode(status):
        return status


@pytest.fixture
def system(monkeypatch):
    system = System()
    monkeypatch.setattr(process_family, "os", system)
    monkeypatch.setattr(process_family, "resource", system)
    monkeypatch.setattr(process_family, "signal", system)
    return system


@pytest.fixture
def looks(monkeypatch):
    """at: whose family was looked for. found: what each look will find."""
    looks = SimpleNamespace(at=[], found=[])

    def family_of(pid):
        looks.at.append(pid)
        return looks.found.pop(0) if looks.found else set()

    monkeypatch.setattr(process_family, "_family_of", family_of)
    return looks


def test_orphans_come_to_us(monkeypatch):
    asked = []

    def library(name):
        assert name is None
        return SimpleNamespace(prctl=lambda *numbers: asked.append(numbers))

    monkeypatch.setattr(process_family, "ctypes", SimpleNamespace(CDLL=library))
    process_family.adopt_orphans()
    assert asked == [(36, 1, 0, 0, 0)]  # PR_SET_CHILD_SUBREAPER, in linux/prctl.h


def test_where_orphans_cannot_come_to_us_nothing_fails(monkeypatch):
    monkeypatch.setattr(
        process_family, "ctypes", SimpleNamespace(CDLL=lambda name: SimpleNamespace())
    )
    process_family.adopt_orphans()


@pytest.mark.parametrize(
    "forks_to, blocked", [(77, GROUP | {signal.SIGUSR1}), (0, {signal.SIGUSR1})]
)
def test_after_a_fork_only_the_child_gets_signals_to_the_group(system, forks_to, blocked):
    system.blocked, system.forks_to = {signal.SIGUSR1}, forks_to
    assert process_family.split() == forks_to
    assert system.blocked == blocked


@pytest.mark.parametrize("code", [0, 3, 255])
def test_it_exits_as_the_caller_does(system, looks, code):
    system.status, system.blocked = code, {*GROUP, signal.SIGUSR1}
    with pytest.raises(Left) as left:
        process_family.see_out(77)
    assert left.value.args == (code,) and not system.killed and not system.limits
    ignored = dict.fromkeys(GROUP, signal.SIG_IGN)
    assert system.handlers_at_wait == (ignored, {signal.SIGUSR1})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_it_dies_of_the_callers_signal_and_leaves_no_file(system, looks, number):
    system.status = -number
    with pytest.raises(Left):  # a stand-in survives its own signal
        process_family.see_out(77)
    assert system.killed == [(SELF, number)] and system.limits == {"core": (0, 0)}
    assert number == signal.SIGKILL or system.handlers[number] is signal.SIG_DFL


def test_it_kills_what_the_caller_has_left_until_none_is_left(system, looks):
    system.children = [(8, 0), None, (0, 1), (1, 0), None, (9, 0)]
    with pytest.raises(Left):
        process_family.see_out(77)
    assert looks.at == [SELF] * 4  # it looks twice where it finds nothing
    assert not system.children


def test_all_that_are_found_are_killed(system, looks):
    looks.found, system.sessions = [{601, 602, 603}], {601: 5, 603: 5}  # 602 has just ended
    assert process_family.kill(5) is True
    assert sorted(system.killed) == [(each, signal.SIGKILL) for each in (601, 602, 603)]
    assert looks.at == [5]


def test_what_the_first_look_misses_the_second_finds(system, looks):
    looks.found = [set(), {601}]
    assert process_family.kill(5) is True and looks.at == [5, 5]
    assert system.killed == [(601, signal.SIGKILL)]


def test_where_there_is_nothing_nothing_is_killed(system, looks):
    assert process_family.kill(5) is False and not system.killed


class Process:
    """`of`: each process's parent and state. A state that is None cannot be seen."""

    of: dict[int, tuple[int, str | None]] = {}

    def __init__(self, pid):
        if pid not in self.of:
            raise Unseen
        self.pid = pid

    def children(self, recursive=False):
        own = [Process(pid) for pid, (parent, _) in self.of.items() if parent == self.pid]
        deeper = [each for child in own for each in child.children(True)] if recursive else []
        return own + deeper

    def status(self):
        if self.of[self.pid][1] is None:
            raise Unseen
        return self.of[self.pid][1]


@pytest.fixture
def processes(monkeypatch, system):
    """A table of them, as in Process.of."""
    table = {}
    monkeypatch.setattr(Process, "of", table)
    psutil = SimpleNamespace(
        Process=Process, Error=Unseen, STATUS_ZOMBIE="zombie", pids=lambda: [*table, 699]
    )
    monkeypatch.setitem(sys.modules, "psutil", psutil)
    return table


def test_a_family_is_all_descendants_that_live(processes):
    processes |= {
        600: (1, "running"),
        601: (600, "sleeping"),
        602: (601, "running"),
        603: (602, "zombie"),
        604: (602, None),
        605: (603, "running"),
        606: (1, "running"),
    }
    assert process_family._family_of(600) == {601, 602, 605}


def test_a_family_has_all_of_its_session_too(system, processes):
    processes |= {
        600: (1, "running"),
        601: (1, "sleeping"),
        602: (1, "zombie"),
        603: (1, None),
        604: (1, "running"),
        605: (600, "running"),
    }
    system.sessions = {600: 600, 601: 600, 602: 600, 603: 600, 604: 1, 605: 605, 699: 600}
    assert process_family._family_of(600) == {601, 605}


def test_a_session_outlives_its_first_process(system, processes):
    processes |= {601: (1, "running"), 604: (1, "running")}
    system.sessions = {601: 600, 604: 1}
    assert process_family._family_of(600) == {601}
