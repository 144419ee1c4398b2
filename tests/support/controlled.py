"""A stand-in for the system that a sandbox's first process works on: processes, pipes, time.

Nothing real is forked, signalled or limited. Only waiting moves the clock.
"""

import os
import select
import signal
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lessons_grading import controller
from lessons_grading.controller import LENGTH

RUN = 77  # the process that a fork makes
START = 64.0  # of the clock


class Exited(BaseException):
    """What os._exit does here. The first in `System.exits` is the true one."""


class System:
    """The calls of `os` that controller.py uses; those that harm nobody are the real ones.

    pid: of the controller itself.
    parents: all other processes, with the parent of each.
    codes: of those that have ended and that nobody has waited for.
    script: what happens while the controller waits, one step each time.
    """

    def __init__(self, proc: Path):
        self.proc, self.pid, self.now = proc, 50, START
        self.parents: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.bombs: set[int] = set()  # each starts another when it alone is killed
        self.script, self.num_calls = [], 0
        self.exits, self.closed, self.joined = [], set(), {}
        self.asked, self.handlers, self.limits = {}, {}, {}
        self.niceness, self.sessions, self.imported, self.invalidated = 0, 0, [], 0
        self.is_run, self.helper_code = False, 0
        self.pipes, self.run, self.watch = {}, None, None
        self.descriptors: dict[int, int] = {}  # the process's, each with ours in its place
        self.drained: set[int] = set()  # look readable, but somebody has read them already

    def __getattr__(self, name):
        return getattr(os, name)

    def _count(self):
        self.num_calls += 1
        assert self.num_calls < 2000, "it goes on for ever"

    def getpid(self):
        return self.pid

    def fork(self):
        if self.is_run:
            return 0
        self.parents[RUN] = self.pid
        if len(self.pipes) == 6:
            self.run = Child(self, list(self.pipes))
        return RUN

    def _exit(self, code):
        self.exits.append(code)
        raise Exited(code)

    def waitpid(self, pid, options):
        """No process is in our group: each run has a session of its own."""
        self._count()
        ours = [each for each, parent in self.parents.items() if parent == self.pid]
        ours = ours if pid == -1 else [each for each in ours if each == pid]
        if not ours:
            raise ChildProcessError
        for each in ours:
            if each in self.codes:
                del self.parents[each]
                return each, self.codes.pop(each)
        if options & os.WNOHANG:
            return 0, 0
        del self.parents[ours[0]]
        return ours[0], self.helper_code

    def kill(self, pid, number):
        assert (self.pid, pid, number) == (1, -1, signal.SIGKILL), "that would harm others"
        for each in set(self.parents) - {1}:
            self.end(each)

    def end(self, pid, code=signal.SIGKILL):
        """Its children become ours."""
        self.codes.setdefault(pid, int(code))
        for each, parent in self.parents.items():
            if parent == pid:
                self.parents[each] = self.pid

    def kill_one(self, pid):
        if pid not in self.parents:
            raise psutil.NoSuchProcess(pid)
        if pid in self.bombs and pid not in self.codes:
            self.bombs.add(new := max(self.parents) + 1)
            self.parents[new] = self.pid
        self.end(pid)

    def processes(self):
        return [Process(self, pid) for pid in self.parents]

    def setsid(self):
        self.sessions += 1

    def nice(self, more):
        self.niceness += more

    def pipe(self):
        ends = os.pipe()
        self.pipes |= dict.fromkeys(ends, True)
        return ends

    def open(self, path, flags):
        self.pipes[end := os.open(path, flags)] = True
        return end

    def dup(self, descriptor):
        return os.dup(self.descriptors[descriptor])

    def close(self, descriptor):
        self.closed.add(descriptor)
        if self.pipes.pop(descriptor, False):
            os.close(descriptor)

    def dup2(self, descriptor, place):
        self.joined[place] = os.readlink(f"/proc/self/fd/{descriptor}")

    def read(self, descriptor, size):
        assert not os.get_blocking(descriptor), "a run could make it wait"
        return os.read(descriptor, size)

    def write(self, descriptor, data):
        assert not os.get_blocking(descriptor), "a run could make it wait"
        return os.write(descriptor, data)

    def select(self, sources, writable, failing, seconds):
        self._count()
        ready = select.select(sources, writable, failing, 0.0)[0]
        ready = [each for each in sources if each in ready or each in self.drained]
        if not ready and seconds != 0.0:
            self.sleep(seconds)
            assert self.script, "it waits for ever"
            self.script.pop(0)()
        return ready, [], []

    def scandir(self, folder):
        return sorted(os.scandir(folder), key=lambda entry: entry.name)

    def listdir(self, folder):
        return sorted(os.listdir(self.path(folder)))

    def path(self, name):
        return self.proc / os.path.relpath(name, "/proc")

    def sleep(self, seconds):
        self.now += seconds

    def stopwatch(self, observe, every):
        assert (observe, every) == (controller._observe, 0.1)
        self.watch = Watch()
        return self.watch


class Process:
    def __init__(self, system: System, pid: int):
        self.system, self.pid = system, pid

    def kill(self):
        self.system.kill_one(self.pid)

    def children(self, recursive=False):
        found, new = [], [self.pid]
        while new:
            new = [pid for pid, parent in self.system.parents.items() if parent in new]
            found += new
            if not recursive:
                break
        return [Process(self.system, pid) for pid in found]


class Child:
    """A run, with its copies of the ends of the pipes."""

    def __init__(self, system: System, ends: list[int]):
        self.system = system
        self.reports, self.answers, self.output = map(os.dup, (ends[1], ends[2], ends[5]))
        self.is_open = True

    def report(self, message: bytes):
        os.write(self.reports, LENGTH.pack(len(message)) + message)

    def print(self, text: bytes):
        os.write(self.output, text)

    def end(self, code: int = 0):
        """It ends with a code as waitpid gives it: 256 times its own, or a signal."""
        self.close()
        self.system.end(RUN, code)

    def close(self):
        for end in (self.reports, self.answers, self.output) if self.is_open else ():
            os.close(end)
        self.is_open = False


class Watch:
    """The own seconds of a run, as the test says."""

    def __init__(self):
        self.seconds, self.left_out = 0.5, 0.0

    def look(self):
        return self.seconds

    def leave_out(self, seconds):
        self.left_out += seconds


class Judge:
    """Its answers are ready; it takes `thinks` seconds for each. Then it is gone."""

    def __init__(self, system: System, *answers: bytes, thinks: float = 0.0):
        self.system, self.answers, self.thinks = system, list(answers), thinks
        self.got: list[bytes] = []

    def recv_bytes(self):
        if not self.answers:
            raise EOFError
        self.system.now += self.thinks
        return self.answers.pop(0)

    def send_bytes(self, data):
        self.got.append(data)


@pytest.fixture
def system(monkeypatch, tmp_path):
    """controller.py with nothing real in its reach."""
    made = System(tmp_path / "proc")

    def import_module(name):
        made.imported.append(name)

    def invalidate_caches():
        made.invalidated += 1

    def setrlimit(name, limits):
        if limits == (13, 13):
            raise ValueError("more than the hard limit")
        made.limits[name] = limits

    instead = {
        "os": made,
        "ROOT": tmp_path / "course",
        "Path": made.path,
        "Stopwatch": made.stopwatch,
        "time": SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep),
        "select": SimpleNamespace(select=made.select),
        "importlib": SimpleNamespace(
            import_module=import_module, invalidate_caches=invalidate_caches
        ),
        "psutil": SimpleNamespace(
            Error=psutil.Error,
            process_iter=made.processes,
            Process=lambda: Process(made, made.pid),
        ),
        "ctypes": SimpleNamespace(
            CDLL=lambda name: SimpleNamespace(prctl=made.asked.__setitem__)
        ),
        "signal": SimpleNamespace(
            SIGINT=signal.SIGINT,
            SIGKILL=signal.SIGKILL,
            SIG_DFL=signal.SIG_DFL,
            default_int_handler=signal.default_int_handler,
            strsignal=signal.strsignal,
            signal=made.handlers.__setitem__,
        ),
        "resource": SimpleNamespace(
            RLIMIT_DATA="data",
            RLIMIT_CORE="core",
            RLIMIT_NOFILE="files",
            RUSAGE_CHILDREN="children",
            setrlimit=setrlimit,
            getrusage={"children": SimpleNamespace(ru_utime=8.0, ru_stime=0.5)}.get,
        ),
        "gc": SimpleNamespace(freeze=lambda: None),
    }
    for name, stand_in in instead.items():
        monkeypatch.setattr(controller, name, stand_in)
    yield made
    if made.run:
        made.run.close()
    for end in made.pipes:
        os.close(end)
