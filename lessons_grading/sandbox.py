"""One sandbox: processes that run the functions of worker.py and cannot do any harm.

With bubblewrap it sees the course and the system, both read-only. It has no network and a
small disk. Everything that it starts ends with it. A watcher ends it if it takes more than it
may.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection

import msgspec
import psutil

from lessons_grading import confinement, reports, usage
from lessons_grading.reports import LARGEST_MESSAGE, Ended, Misfit, Report
from lessons_lib.cuda.compiler_errors import CannotBuild, CompileError
from lessons_lib.processes.isolation import BUSY, Outcome

START_LIMIT = 300.0  # clock seconds; it imports PyTorch
# clock seconds beyond a run's longest time; after that a sandbox counts as dead
PATIENCE = 60.0
LARGEST_SUM = 64 << 20  # bytes of everything that a submission reports
SMALLEST = 1 << 10  # bytes that a message counts for at least, for its work
_KILLED = signal.strsignal(signal.SIGKILL)
_OWN_ENDINGS = ("exit code 0", f"exit code {reports.STOPPED}")  # of our own worker
UNREADABLE = "what came from its sandbox cannot be read"
WATCH_EVERY = 0.2  # seconds
MANY = 24  # processes; then there is no time for a long look at each

missing = confinement.missing


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Sizes are bytes. Seconds are its own (cpu_time.py); by the clock it gets BUSY times as
    many, and never more than `total_seconds` for all that is done with it.

    memory, processes: of all its processes together; threads count as processes.
    output: what its cells may write.
    disk: its files.
    sandboxed: False runs it as a plain process.
    unseen: folders that it must not see, wherever they are.
    """

    cell_seconds: float = 60.0
    notebook_seconds: float = 600.0
    total_seconds: float = 900.0
    memory: int = 4 << 30
    processes: int = 64
    output: int = 10 << 20
    disk: int = 1 << 30
    sandboxed: bool = True
    unseen: tuple[str, ...] = ()


def _are_kept_by_kernel(limits: Limits) -> bool:
    return limits.sandboxed and confinement.systemd_scope() is not None


def limited_by(limits: Limits) -> str:
    """What keeps the limits on memory and processes here, in words for a report."""
    if _are_kept_by_kernel(limits):
        return "the kernel, in a cgroup of its own for each notebook"
    watcher = f"a watcher that looks every {WATCH_EVERY:g} s"
    return f"{watcher}, and a filter of system calls" if limits.sandboxed else watcher


class Taken:
    """What a submission has taken so far, through one sandbox after another.

    bytes: of what it has reported.
    until: when its time by the clock is over.
    """

    def __init__(self, seconds: float):
        self.bytes, self.until = 0, time.monotonic() + seconds

    def is_too_much(self) -> bool:
        return self.bytes > LARGEST_SUM

    def seconds_left(self) -> float:
        return max(0.0, self.until - time.monotonic())


class Sandbox:
    """Starts when it is made. Raises RuntimeError if it cannot be started.

    reason: why it has ended.
    was_killed: whether that was somebody from outside, such as a system without memory.
    """

    def __init__(self, limits: Limits, taken: Taken):
        self.limits, self.taken, self.reason, self.alive = limits, taken, "", True
        self.was_killed, self._memory = False, 0
        self.deadline = time.monotonic() + START_LIMIT  # of the present work
        self._folder = (
            None if limits.sandboxed else tempfile.TemporaryDirectory(prefix="grade-")
        )
        self._start()
        threading.Thread(target=self._watch, daemon=True).start()
        if self._next_message() != b"ready":
            said = self._read_errors() if self._process.poll() is not None else ""
            reason = said or self.reason
            self.close()
            raise RuntimeError(f"The sandbox could not be started: {reason}")
        self._errors.close()  # from now on, nothing that is written there is read
        self.deadline = float("inf")

    def _start(self):
        limits = self.limits
        code = "from lessons_grading.controller import serve; serve()"
        command = [sys.executable, "-P", "-c", code]
        resources = {
            "RLIMIT_DATA": limits.memory * 3 // 4,
            "RLIMIT_FSIZE": limits.disk,
            "RLIMIT_NOFILE": 1024,
            "RLIMIT_CORE": 0,
        }
        orders, our_orders = os.pipe()
        our_replies, replies = os.pipe()
        with ExitStack() as stack:
            words: list[str] = []
            descriptors: tuple[int, ...] = ()
            if limits.sandboxed:
                scope = confinement.in_scope(limits.memory + limits.disk, limits.processes)
                words, descriptors = stack.enter_context(
                    confinement.command_line(limits.disk, limits.unseen)
                )
                words = [*scope, *words]
                if confinement.is_root() or _counts_tasks_by_user_namespace():
                    # between two looks of the watcher
                    resources["RLIMIT_NPROC"] = 4 * limits.processes
            folder = self._folder.name if self._folder else confinement.SCRATCH
            self._process = subprocess.Popen(
                # the watcher goes first, even next to a fork bomb
                ["nice", "-n", "10", *words, *command],
                stdin=orders,
                stdout=replies,
                stderr=subprocess.PIPE,
                cwd=self._folder.name if self._folder else "/",
                env=confinement.environment(folder, resources),
                pass_fds=descriptors,
                start_new_session=True,
            )
        assert self._process.stderr is not None  # it is a pipe
        self._errors = self._process.stderr
        os.close(orders)
        os.close(replies)
        self._orders = Connection(our_orders)
        self._replies = Connection(our_replies)

    def _read_errors(self) -> str:
        return self._errors.read(1 << 16).decode(errors="replace").strip()[-500:]

    def run(
        self,
        function: str,
        *arguments: object,
        files: dict[str, str],
        seconds: float,
        output_limit: float | None = None,
        clean: bool = False,
    ) -> "Run":
        """Starts a function of worker.py. Only one may run at a time.

        files: files of the course, by path.
        clean: whether everything that an earlier run has written is deleted first.
        """
        order = {"function": function, "clean": clean, "output_limit": output_limit}
        return Run(self, seconds, order, files, arguments)

    def send(self, *messages):
        with suppress(OSError):  # it has ended; `receive` will say so
            for message in messages:
                self._orders.send_bytes(msgspec.json.encode(message))

    def receive(self) -> tuple[float, Report] | Ended | None:
        """What comes next: its own seconds so far with a report, or how the run has ended.

        None if the sandbox has ended; `reason` then says why.
        """
        if (message := self._next_message()) is None:
            return None
        try:
            return reports.read(message)
        except Misfit:
            self.end(UNREADABLE)
            return None

    def _next_message(self) -> bytes | None:
        try:
            message = self._replies.recv_bytes(LARGEST_MESSAGE + 1024)
        except (EOFError, OSError) as error:
            self.end(self._how_it_ended() if isinstance(error, EOFError) else UNREADABLE)
            return None
        self.taken.bytes += max(len(message), SMALLEST)
        if self.taken.is_too_much():
            self.end(f"it reported more than {LARGEST_SUM >> 20} MB")
            return None
        return message

    def _how_it_ended(self) -> str:
        """A cgroup's kernel kills bubblewrap too. bubblewrap says by 128 + 9 that the first
        process was killed, which nobody inside can do.
        """
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=5.0)
            was_large = self._memory > self.limits.memory / 2
            if code == -signal.SIGKILL and was_large and _are_kept_by_kernel(self.limits):
                return self._words_on_memory()
            if not self.reason and code in (-signal.SIGKILL, 128 + signal.SIGKILL):
                self.was_killed = True
                return "it was killed from outside"
        return "its sandbox ended"

    def _words_on_memory(self) -> str:
        return f"it took more than {self.limits.memory / 2**30:g} GB of memory"

    def close(self):
        """Ends the sandbox and everything that it has started."""
        self.end("it was closed")
        for end in (self._orders, self._replies, self._errors):
            end.close()
        if self._folder:
            self._folder.cleanup()

    def end(self, reason: str):
        self.alive, self.reason = False, self.reason or reason
        for process in usage.tree(self._process.pid) if self._process.poll() is None else ():
            with suppress(psutil.Error):
                process.kill()
        self._process.kill()
        self._process.wait()

    def _watch(self):
        while self.alive and self._process.poll() is None:
            if reason := self._too_much():
                self.end(reason)
            time.sleep(WATCH_EVERY)

    def _too_much(self) -> str:
        processes = usage.tree(self._process.pid)
        # first: it may be why nothing reacts
        if sum(map(usage.num_threads, processes)) > self.limits.processes:
            return f"it started more than {self.limits.processes} processes and threads"
        if time.monotonic() > self.deadline:
            return "it did not react any more"
        of_sockets = usage.sockets(processes[0]) if processes and self.limits.sandboxed else 0
        # The quick sum counts shared memory for each process. The exact sum counts it once,
        # but takes longer.
        self._memory = sum(map(usage.memory, processes)) + of_sockets
        if self._memory > self.limits.memory and (
            len(processes) > MANY
            or sum(map(usage.share, processes)) + of_sockets > self.limits.memory
        ):
            return f"{self._words_on_memory()}, in {len(processes)} processes"
        if self.limits.sandboxed and usage.disk(processes) > self.limits.disk:
            return f"it wrote more than {self.limits.disk / 2**30:.2g} GB of files"
        return ""


class Run:
    """A function that runs in a sandbox. `next` gives its reports; `outcome` is how it ended.

    seconds: its own seconds so far.
    from_outside: whether the clock has ended it, or somebody who killed it: another try may
        end in another way. (A run may also kill itself so, and has nothing from that.)
    """

    def __init__(
        self,
        sandbox: Sandbox,
        seconds: float,
        order: dict,
        files: dict[str, str],
        arguments: tuple,
    ):
        self.sandbox, self.seconds, self.from_outside = sandbox, 0.0, False
        self._outcome: Outcome | None = None
        self._owes_answer = False
        self._last_words: Report | None = None
        sandbox.send(order | {"limits": self._limits(seconds)}, files, arguments)

    @property
    def outcome(self) -> Outcome:
        """After its last report."""
        assert self._outcome is not None
        return self._outcome

    def _limits(self, seconds: float) -> list[float]:
        """The own seconds that it may take from now on, and those by the clock."""
        clock = min(BUSY * seconds, self.sandbox.taken.seconds_left())
        self.sandbox.deadline = time.monotonic() + clock + PATIENCE
        return [seconds, clock]

    def next(self, seconds: float | None = None) -> Report | None:
        """The next report, or None if it has ended.

        seconds: the own seconds that it may take from now on.
        """
        if self._outcome:
            return None
        limits = None if seconds is None else self._limits(seconds)
        while True:
            if self._owes_answer:
                self.sandbox.send(limits)
            received = self.sandbox.receive()
            match received:
                case (own, report):
                    self._owes_answer, self.seconds, limits = True, own, None
                    if not isinstance(
                        report, reports.Returned | reports.Raised | reports.Exited
                    ):
                        return report
                    self._last_words = report
                case Ended():
                    self._end(received)
                    break
                case _:
                    self.from_outside = self.sandbox.was_killed
                    self._outcome = Outcome("crashed", detail=self.sandbox.reason)
                    break
        self.sandbox.deadline = float("inf")
        return None

    def _end(self, ended: Ended):
        is_starved = ended.ending == "starved"
        # or by us, when the whole sandbox takes too much
        was_killed = ended.detail == _KILLED and not self.sandbox.reason
        self.seconds, self.from_outside = ended.seconds, is_starved or was_killed
        ending = "timed out" if is_starved else ended.ending
        outcome = Outcome(ending, detail=ended.detail, printed=ended.printed)
        if ending == "exited" and ended.detail in _OWN_ENDINGS:
            match self._last_words:
                case reports.Returned():
                    outcome = replace(outcome, ending="returned", detail="")
                case reports.Exited(how):
                    outcome = replace(outcome, detail=how)
                case reports.Raised(name, words):
                    error = _error(name, words)
                    outcome = replace(outcome, ending="raised", detail="", error=error)
        self._outcome = outcome

    def stop(self):
        """Ends it, if it has not ended yet."""
        if self._outcome is None:
            while self.next(0.0) is not None:
                pass
            self.from_outside = False


def _error(name: str, words: str) -> BaseException:
    """An exception with this name that describes itself in these words."""
    words = "" if words == name else words.removeprefix(f"{name}: ")
    of_builds = {kind.__name__: kind for kind in (CompileError, CannotBuild)}
    return (of_builds.get(name) or type(name[:100], (Exception,), {}))(words)


@cache
def _counts_tasks_by_user_namespace() -> bool:
    """Whether RLIMIT_NPROC counts only the sandbox (since Linux 5.14), not the whole user."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and tuple(map(int, release.groups())) >= (5, 14)
