"""The first process of a sandbox. It starts worker.py's functions and ends what they leave.

Each function runs in a separate process. This one runs no code of a submission and reads
nothing that comes from it. What a run reports goes to the judge unchanged.

It takes one order at a time from the judge. An order is three messages. Two other processes
read the second message (the files of the course) and the third (the run's arguments). So
neither is in the memory of this process, which each run copies. The judge answers each report
with new limits or with null.
"""

import gc
import importlib
import json
import math
import os
import queue
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

import psutil

from lessons_grading.sandbox_messages import ENDED, LARGEST_MESSAGE, REPORT, SECONDS
from lessons_lib import rooms
from lessons_lib.paths import ROOT
from lessons_lib.processes import linux, process_tree
from lessons_lib.processes.cpu_time import Observation, Stopwatch, observe_processes
from lessons_lib.processes.isolation import LOOK_EVERY, Printed, ending_of

PRELOADED = (
    "torch",
    "cloudpickle",
    "IPython.core.interactiveshell",
    "IPython.core.history",
    "lessons_lib.checks",
    # so that no run imports them
    "lessons_lib.cuda.library",
    "lessons_lib.checks.result_codec",
    "lessons_grading.worker",
)
# of the course; in a sandbox each run brings these files
WRITTEN = rooms.WITH_ANSWERS
# A mounted folder stays, and so do the folders around it. A folder without rights gets them.
_CLEAR = """
chmod -R u+rwX "$@"
find "$@" -xdev -mindepth 1 -delete
left=$(find "$@" -xdev -mindepth 1 ! -type d -print -quit) && test -z "$left"
"""


def serve():
    """Takes orders from descriptor 0 and replies there, until the judge is gone."""
    judge = Connection(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    _become_nobody()
    _protect()
    gc.disable()  # imports leave no garbage, and looking for it takes a fifth of their time
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # what exists by now outlives every run
    gc.enable()
    os.dup2(nothing, 2)  # until here it was told there why it cannot start
    judge.send_bytes(b"ready")
    with suppress(EOFError, OSError):
        while True:
            order = json.loads(judge.recv_bytes())
            _clear(*(_writable() if order["clean"] else ()))
            _place(judge)
            ended = _Run(order, judge).follow()
            judge.send_bytes(ENDED + json.dumps(ended).encode())


def _become_nobody():
    """Where root grades: becomes a user that owns nothing, and that nothing else uses.

    A user that is mapped to root will not do, because it could change the system's settings.
    """
    if not (_is_first() and os.getuid() == 0):
        return
    folders = [*map(Path, _writable()), *(ROOT / folder for folder in WRITTEN)]
    # with runtimes for CUDA, and with a lesson's pictures
    folders += [*Path(_writable()[0]).glob("build"), *ROOT.glob("lessons_content/lesson_*")]
    for folder in folders:
        os.chmod(folder, 0o777)
    nobody = int(os.environ["LESSONS_GRADE_USER"])
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)


def _protect():
    """Limits this process and its descendants, which may not look into it or interrupt it."""
    # a sandbox's first process gets only signals that it asked for
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name, limit in json.loads(os.environ.pop("LESSONS_GRADE_LIMITS")).items():
        with suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    linux.prctl(linux.SET_DUMPABLE, 0)
    process_tree.adopt_orphans()  # so that we find what a run leaves behind
    linux.prctl(linux.SET_PDEATHSIG, signal.SIGKILL)


def _place(judge: Connection):
    """Empties the folders of WRITTEN and puts the next message's files there.

    Without a sandbox the course stays as it is.
    """
    folders = WRITTEN if _is_first() else ()
    if not (helper := os.fork()):
        try:
            files = json.loads(judge.recv_bytes())
            _clear(*(ROOT / folder for folder in folders))
            for path in files if folders else ():
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_bytes(files[path].encode())
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(helper, 0)[1]:
        os._exit(1)
    importlib.invalidate_caches()


def _clear(*folders: str | Path):
    """Deletes what runs have left there. The sandbox ends if something of it stays.

    What the sandbox itself has put there is not deleted.
    """
    words = ["sh", "-c", _CLEAR, "sh", *map(str, folders)]
    if folders and subprocess.run(words, stderr=subprocess.DEVNULL).returncode:
        os._exit(1)


def _writable() -> list[str]:
    """The folders in which runs may leave something, without the folders of WRITTEN."""
    return [os.environ["LESSONS_GRADE_FOLDER"], *(["/tmp", "/dev/shm"] if _is_first() else [])]


def _is_first() -> bool:
    """Whether this is a sandbox's first process. No other process can send it signals."""
    return os.getpid() == 1


def _of_runs() -> set[int]:
    if _is_first():
        return {*psutil.pids()} - {1}
    return process_tree.family(os.getpid())


def _end_what_is_left():
    """Ends the processes that a run has left behind, in whatever session they are."""
    for _ in range(100):
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = _of_runs()
        if not left:
            return
        if _is_first():
            os.kill(-1, signal.SIGKILL)  # all at once, so that none can start another
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    os._exit(1)  # they start faster than we can end them, so the sandbox ends


class _Run:
    """A function of worker.py in a separate process, and what becomes of it."""

    def __init__(self, order: dict, judge: Connection):
        self.judge = judge
        self.output_limit = order["output_limit"] or math.inf
        self.reports, theirs = Pipe(duplex=False)
        answers, self.answers = os.pipe()
        self.output, written = os.pipe()
        os.set_blocking(self.answers, False)
        self.pid = os.fork()
        if not self.pid:
            _be_the_run(order["function"], judge, theirs.fileno(), answers, written)
        theirs.close()
        os.close(answers)
        os.close(written)
        self.status: int | None = None
        self.printed = Printed()
        self.arrived = queue.Queue[bytes | None](1)
        # they end when the run has, and all that it has started: the other ends are there
        readers = self._read_reports, self._read_output
        self.readers = [Thread(target=reader, daemon=True) for reader in readers]
        for reader in self.readers:
            reader.start()
        self.watch = Stopwatch(_observe, LOOK_EVERY)
        self._limit(*order["limits"])

    def _read_reports(self):
        with suppress(EOFError, OSError):  # an OSError if a report is too long
            while True:
                self.arrived.put(self.reports.recv_bytes(LARGEST_MESSAGE))
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.arrived.put(None)

    def _read_output(self):
        while self.printed.read(self.output):
            pass

    def _limit(self, seconds: float, clock: float):
        """Sets the own seconds that it may take from now on, and the seconds by the clock."""
        self.seconds, self.until = seconds, self.watch.look() + seconds
        self.clock, self.deadline = clock, time.monotonic() + clock

    def follow(self) -> dict:
        """How it ended, its output and its own seconds. Then nothing of it is left."""
        ending, detail = self._follow()
        seconds = self.watch.look()
        _end_what_is_left()
        while any(reader.is_alive() for reader in self.readers):
            with suppress(queue.Empty):
                self.arrived.get(timeout=0.001)
        self.reports.close()
        os.close(self.answers)
        os.close(self.output)
        printed = self.printed.text()
        return {"ending": ending, "detail": detail, "printed": printed, "seconds": seconds}

    def _follow(self) -> tuple[str, str]:
        while True:
            status = self._status_if_ended()
            message: bytes | None = None
            with suppress(queue.Empty):
                message = self.arrived.get(timeout=LOOK_EVERY if status is None else 0.0)
            if self.printed.length > self.output_limit:
                return "flooded", f"{self.output_limit} bytes"
            if message is not None:
                self._pass_on(message)
            elif status is not None:
                return ending_of(os.waitstatus_to_exitcode(status))
            if self.watch.look() > self.until:
                return "timed out", f"{self.seconds:g} s"
            if time.monotonic() > self.deadline:
                return "starved", f"{self.clock:g} s by the clock"

    def _status_if_ended(self) -> int | None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.status = ended[1] if ended[0] == self.pid else self.status
        return self.status

    def _pass_on(self, message: bytes):
        begun = time.monotonic()
        self.judge.send_bytes(REPORT + SECONDS.pack(self.watch.look()) + message)
        try:
            limits = json.loads(self.judge.recv_bytes())
        except (EOFError, OSError):
            sys.exit()  # the judge is gone
        paused = time.monotonic() - begun
        self.watch.leave_out(paused)
        self.deadline += paused
        if limits:
            self._limit(*limits)
        with suppress(OSError):  # it does not wait, or it has ended
            os.write(self.answers, b"\n")


def _be_the_run(function: str, judge: Connection, reports: int, answers: int, output: int):
    """Runs in the new process and never returns."""
    try:
        arguments = json.loads(judge.recv_bytes())
        os.setsid()
        linux.prctl(linux.SET_DUMPABLE, 1)  # else it cannot open its own files in /proc
        linux.prctl(linux.SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in range(3, 256):
            if descriptor not in (reports, answers):
                with suppress(OSError):
                    os.close(descriptor)
        worker = importlib.import_module("lessons_grading.worker")
        worker.run(function, arguments, Connection(reports, readable=False), answers)
    finally:
        os._exit(1)


def _observe() -> Observation:
    """All processes of runs so far, even those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked, threads = observe_processes(_of_runs())
    return worked + ended.ru_utime + ended.ru_stime, threads
