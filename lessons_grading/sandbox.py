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
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import Pipe

import msgspec
import psutil

from lessons_grading import confinement, sandbox_messages, usage
from lessons_grading.sandbox_messages import LARGEST_MESSAGE, Ended, Finished, Report
from lessons_lib.cuda.compiler_errors import CannotBuild, CompileError
from lessons_lib.processes.isolation import BUSY, Outcome

START_LIMIT = 300.0  # clock seconds; it imports PyTorch
# clock seconds beyond a run's longest time; after that a sandbox counts as dead
PATIENCE = 60.0
LARGEST_SUM = 64 << 20  # bytes of everything that a submission reports
SMALLEST = 1 << 10  # bytes that each message counts at least, as reading it is work
_KILLED = signal.strsignal(signal.SIGKILL)
_OWN_ENDINGS = ("exit code 0", f"exit code {sandbox_messages.STOPPED}")  # of our own worker
UNREADABLE = "what came from its sandbox cannot be read"
WATCH_EVERY = 0.2  # seconds
MANY = 24  # processes; then there is no time for a long look at each

missing = confinement.missing


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Sizes are bytes. Seconds are its own (lessons_lib/processes/cpu_time.py). By the clock it
    gets BUSY times as many, and never more than `total_seconds` for all that is done with it.

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
    was_killed: whether something outside has killed it, such as a system without memory.
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
            said = ""
            if self._process.poll() is not None:
                said = self._errors.read(1 << 16).decode(errors="replace").strip()[-500:]
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
        scope: list[str] = []
        wall: AbstractContextManager[confinement.CommandLine] = nullcontext(([], ()))
        if limits.sandboxed:
            scope = confinement.in_scope(limits.memory + limits.disk, limits.processes)
            wall = confinement.command_line(limits.disk, limits.unseen)
            if confinement.is_root() or _counts_tasks_by_user_namespace():
                # between two looks of the watcher
                resources["RLIMIT_NPROC"] = 4 * limits.processes
        self._pipe, theirs = Pipe()
        with theirs, wall as (words, descriptors):
            self._process = subprocess.Popen(
                # the watcher goes first, even next to a fork bomb
                ["nice", "-n", "10", *scope, *words, *command],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder.name if self._folder else "/",
                env=confinement.environment(
                    self._folder.name if self._folder else confinement.SCRATCH, resources
                ),
                pass_fds=descriptors,
                start_new_session=True,
            )
        assert self._process.stderr is not None  # it is a pipe
        self._errors = self._process.stderr

    def send(self, *messages):
        with suppress(OSError):  # it has ended; `receive` will say so
            for message in messages:
                self._pipe.send_bytes(msgspec.json.encode(message))

    def receive(self) -> tuple[float, Report] | Ended | None:
        """What comes next: its own seconds so far with a report, or how the run has ended.

        None if the sandbox has ended; `reason` then says why.
        """
        message = self._next_message()
        received = None if message is None else sandbox_messages.read(message)
        if received is None:
            self.end(UNREADABLE)  # if it has not ended for another reason
        return received

    def _next_message(self) -> bytes | None:
        try:
            message = self._pipe.recv_bytes(LARGEST_MESSAGE + 1024)
        except (EOFError, OSError) as error:
            has_ended = isinstance(error, EOFError | ConnectionError)
            self.end(self._how_it_ended() if has_ended else UNREADABLE)
            return None
        self.taken.bytes += max(len(message), SMALLEST)
        if self.taken.is_too_much():
            self.end(f"it reported more than {LARGEST_SUM >> 20} MB")
            return None
        return message

    def _how_it_ended(self) -> str:
        """Tells a limit from a signal that came from outside.

        In a cgroup the kernel kills bubblewrap too. Else bubblewrap's exit code 128 + 9 says
        that the first process was killed, which no process in the sandbox can do.
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
        self._pipe.close()
        self._errors.close()
        if self._folder:
            self._folder.cleanup()

    def end(self, reason: str):
        self.alive, self.reason = False, self.reason or reason
        # the first process first, so that it cannot report how the others end
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
        # this comes first, as it may be why nothing reacts
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
    """A function of worker.py that runs in a sandbox, which runs one at a time.

    `next` gives its reports.

    outcome: how it has ended, after its last report.
    seconds: its own seconds so far.
    from_outside: whether the clock has ended it, or a signal from outside: another try may
        end in another way. (A run may also kill itself in this way, and gains nothing.)
    """

    def __init__(
        self,
        sandbox: Sandbox,
        function: str,
        *arguments: object,
        files: dict[str, str],
        seconds: float,
        clean: bool = True,
        output_limit: float | None = None,
    ):
        """Starts the function.

        files: files of the course, by path.
        seconds: its own seconds that it may take until its first report.
        clean: whether all that an earlier run has written is deleted first.
        output_limit: bytes that it may write.
        """
        self.sandbox, self.seconds, self.from_outside = sandbox, 0.0, False
        self.outcome = Outcome("running")
        self._owes_answer = False
        self._finished: Finished | None = None
        limits = self._limits(seconds)
        order = {"function": function, "clean": clean, "output_limit": output_limit}
        sandbox.send(order | {"limits": limits}, files, arguments)

    def _limits(self, seconds: float) -> list[float]:
        """The own seconds that it may take from now on, and the seconds by the clock."""
        clock = min(BUSY * seconds, self.sandbox.taken.seconds_left())
        self.sandbox.deadline = time.monotonic() + clock + PATIENCE
        return [seconds, clock]

    def next(self, seconds: float | None = None) -> Report | None:
        """The next report, or None if it has ended.

        seconds: the own seconds that it may take from now on; None for what is left.
        """
        if self.outcome.ending != "running":
            return None
        limits = None if seconds is None else self._limits(seconds)
        while True:
            if self._owes_answer:
                self.sandbox.send(limits)
            match self.sandbox.receive():
                case (own, report):
                    self._owes_answer, self.seconds, limits = True, own, None
                    if not isinstance(report, Finished):
                        return report
                    self._finished = report
                case Ended() as ended:
                    self.outcome = self._outcome_of(ended)
                    break
                case _:
                    self.from_outside = self.sandbox.was_killed
                    self.outcome = Outcome("crashed", detail=self.sandbox.reason)
                    break
        self.sandbox.deadline = float("inf")
        return None

    def _outcome_of(self, ended: Ended) -> Outcome:
        is_starved = ended.ending == "starved"
        # or by us, when the whole sandbox takes too much
        was_killed = ended.detail == _KILLED and not self.sandbox.reason
        self.seconds, self.from_outside = ended.seconds, is_starved or was_killed
        ending = "timed out" if is_starved else ended.ending
        outcome = Outcome(ending, detail=ended.detail, printed=ended.printed)
        if ending != "exited" or ended.detail not in _OWN_ENDINGS or not self._finished:
            return outcome
        words = self._finished.words
        if self._finished.ending == "exited":
            return replace(outcome, detail=words)
        error = _error(words) if self._finished.ending == "raised" else None
        return replace(outcome, ending=self._finished.ending, detail="", error=error)

    def stop(self):
        """Ends it, if it has not ended yet."""
        if self.outcome.ending == "running":
            while self.next(0.0) is not None:
                pass
            self.from_outside = False


def _error(description: str) -> BaseException:
    """An exception that describes itself like this: "KeyError: 3"."""
    name, _, words = description.partition(": ")
    of_builds = {kind.__name__: kind for kind in (CompileError, CannotBuild)}
    name = name[:100].replace("\0", "")  # Python refuses that in the name of a type
    return (of_builds.get(name) or type(name, (Exception,), {}))(words)


@cache
def _counts_tasks_by_user_namespace() -> bool:
    """Whether RLIMIT_NPROC counts only the sandbox (since Linux 5.14), not the whole user."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and tuple(map(int, release.groups())) >= (5, 14)
