"""One sandbox: processes that run the functions of worker.py and cannot do any harm.

With bubblewrap it sees the course and the system, both read-only. It has no network and a
small disk. Everything that it starts ends with it. A watcher ends it if it takes more than it
may.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import psutil

from lessons_grading import confinement, usage
from lessons_grading.controller import ENDED, LARGEST_MESSAGE, REPORT, SECONDS
from lessons_lib.compiler_errors import CannotBuild, CompileError
from lessons_processes.isolation import BUSY, Outcome

START_LIMIT = 300.0  # clock seconds; it imports PyTorch
# clock seconds beyond a run's longest time; after that a sandbox counts as dead
PATIENCE = 60.0
LARGEST_SUM = 64 << 20  # bytes of everything that a submission reports
SMALLEST = 1 << 10  # bytes that a message counts for at least, for its work
MOST_PARTS = 200_000  # of a message; each becomes an object, many times its text
WATCH_EVERY = 0.2  # seconds
MANY = 24  # processes; then there is no time for a long look at each

missing = confinement.missing


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Sizes are bytes. Seconds are its own (own_time.py); by the clock it gets BUSY times as
    many.

    memory, processes: of all its processes together; threads count as processes.
    output: what its cells may write.
    disk: its files.
    sandboxed: False runs it as a plain process.
    unseen: folders that it must not see, wherever they are.
    """

    cell_seconds: float = 60.0
    notebook_seconds: float = 600.0
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
    return (
        f"{watcher}, and a filter of system calls"
        if limits.sandboxed and confinement.system_call_filter()
        else watcher
    )


class Reported:
    """How much a submission has reported, through one sandbox after another."""

    def __init__(self):
        self.bytes = 0

    def is_too_much(self) -> bool:
        return self.bytes > LARGEST_SUM


class Sandbox:
    """Starts when it is made. Raises RuntimeError if it cannot be started."""

    def __init__(self, limits: Limits, reported: Reported):
        self.limits, self.reason, self.alive = limits, "", True
        self.deadline = time.monotonic() + START_LIMIT  # of the present work
        self._reported = reported
        self._folder = tempfile.TemporaryDirectory(prefix="grade-")
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
        command = [
            sys.executable,
            "-P",
            "-c",
            "from lessons_grading.controller import serve; serve()",
        ]
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
                words, descriptors = stack.enter_context(
                    confinement.command_line(limits.disk, limits.unseen)
                )
                words = [
                    *confinement.in_scope(limits.memory + limits.disk, limits.processes),
                    *words,
                ]
                if _counts_tasks_by_user_namespace():
                    # between two looks of the watcher
                    resources["RLIMIT_NPROC"] = 4 * limits.processes
            folder = confinement.SCRATCH if limits.sandboxed else self._folder.name
            self._process = subprocess.Popen(
                [*words, *command],
                stdin=orders,
                stdout=replies,
                stderr=subprocess.PIPE,
                cwd=self._folder.name,
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
        return Run(
            self,
            {
                "function": function,
                "limits": [seconds, BUSY * seconds],
                "clean": clean,
                "output_limit": output_limit or sys.maxsize,
            },
            files,
            arguments,
        )

    def send(self, *messages):
        with suppress(OSError):  # it has ended; `receive` will say so
            for message in messages:
                self._orders.send_bytes(json.dumps(message).encode())

    def receive(self) -> tuple | None:
        """What comes next: ("report", its own seconds so far, the report) or ("ended", how).

        None if the sandbox has ended; `reason` then says why.
        """
        message = self._next_message()
        if message is None:
            return None
        kind, content = message[:1], message[1:]
        try:
            if kind == ENDED:
                return "ended", _parsed(content)
            if kind == REPORT:
                return (
                    "report",
                    *SECONDS.unpack(content[: SECONDS.size]),
                    _parsed(content[SECONDS.size :]),
                )
        except (ValueError, RecursionError, struct.error):
            pass
        self.end("what came from its sandbox cannot be read")
        return None

    def _next_message(self) -> bytes | None:
        try:
            message = self._replies.recv_bytes(LARGEST_MESSAGE + 1024)
        except (EOFError, OSError) as error:
            self.end(
                self._how_it_ended()
                if isinstance(error, EOFError)
                else "what came from its sandbox cannot be read"
            )
            return None
        self._reported.bytes += max(len(message), SMALLEST)
        if self._reported.is_too_much():
            self.end(f"it reported more than {LARGEST_SUM >> 20} MB")
            return None
        return message

    def _how_it_ended(self) -> str:
        """In a cgroup the kernel kills bubblewrap too, which else ends with an exit code."""
        with suppress(subprocess.TimeoutExpired):
            was_killed = self._process.wait(timeout=5.0) == -signal.SIGKILL
            if was_killed and _are_kept_by_kernel(self.limits):
                return self._words_on_memory()
        return "its sandbox ended"

    def _words_on_memory(self) -> str:
        return f"it took more than {self.limits.memory / 2**30:g} GB of memory"

    def close(self):
        """Ends the sandbox and everything that it has started."""
        self.end("it was closed")
        for end in (self._orders, self._replies, self._errors):
            end.close()
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
        memory = self.limits.memory - (
            usage.sockets(processes[0]) if processes and self.limits.sandboxed else 0
        )
        # The quick sum counts shared memory for each process. The exact sum counts it once,
        # but takes longer.
        if sum(map(usage.memory, processes)) > memory and (
            len(processes) > MANY or sum(map(usage.share, processes)) > memory
        ):
            return f"{self._words_on_memory()}, in {len(processes)} processes"
        if self.limits.sandboxed and usage.disk(processes) > self.limits.disk:
            return f"it wrote more than {self.limits.disk / 2**30:.2g} GB of files"
        return ""


def _parsed(text: bytes):
    if sum(map(text.count, (b"[", b"{", b","))) > MOST_PARTS:
        raise ValueError("it has too many parts")
    return json.loads(text)


class Run:
    """A function that runs in a sandbox. `next` gives its reports; `outcome` is how it ended.

    seconds: its own seconds so far.
    starved: whether only the clock has ended it.
    """

    def __init__(self, sandbox: Sandbox, order: dict, files: dict[str, str], arguments: tuple):
        self.sandbox, self.seconds, self.starved = sandbox, 0.0, False
        self.outcome: Outcome | None = None
        self._owes_answer = False
        self._last_words: list[str] | None = None
        sandbox.deadline = time.monotonic() + order["limits"][1] + PATIENCE
        sandbox.send(order, files, arguments)

    def next(self, seconds: float | None = None, clock: float = float("inf")) -> Any:
        """The next report, or None if it has ended.

        seconds: the own seconds that it may take from now on.
        clock: the clock seconds, if that is less than BUSY times as many.
        """
        if self.outcome:
            return None
        limits = None if seconds is None else [seconds, min(BUSY * seconds, clock)]
        if limits:
            self.sandbox.deadline = time.monotonic() + limits[1] + PATIENCE
        while True:
            if self._owes_answer:
                self.sandbox.send(limits)
            match self.sandbox.receive():
                case "report", float(own), report if report is not None:
                    self._owes_answer, self.seconds, limits = True, own, None
                    match report:
                        case ["returned"] | ["exited", str()] | ["raised", str(), str()]:
                            self._last_words = report
                        case _:
                            return report
                case "ended", {
                    "ending": str(ending),
                    "detail": str(detail),
                    "printed": str(printed),
                    "seconds": float(own),
                }:
                    self.seconds, self.starved = own, ending == "starved"
                    self.outcome = self._outcome(
                        "timed out" if self.starved else ending, detail, printed
                    )
                    break
                case _:
                    self.sandbox.end("what came from its sandbox cannot be read")
                    self.outcome = Outcome("crashed", detail=self.sandbox.reason)
                    break
        self.sandbox.deadline = float("inf")
        return None

    def _outcome(self, ending: str, detail: str, printed: str) -> Outcome:
        if (ending, detail) == ("exited", "exit code 0"):
            match self._last_words:
                case ["returned"]:
                    return Outcome("returned", printed=printed)
                case ["exited", how]:
                    return Outcome("exited", detail=how, printed=printed)
                case ["raised", name, words]:
                    return Outcome("raised", error=_error(name, words), printed=printed)
        return Outcome(ending, detail=detail, printed=printed)

    def stop(self):
        """Ends it, if it has not ended yet."""
        if self.outcome is None:
            while self.next(0.0) is not None:
                pass
            self.starved = False


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
