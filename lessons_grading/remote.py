"""What a Dask worker runs: each grading is done by one of our processes beside it.

The worker's own process imports nothing that this file does not, so it needs no memory for the
course, and no fault of a grading is one of the worker's. Orders and replies are JSON.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from multiprocessing import Pipe

INSTANCE = uuid.uuid4().hex  # of this worker; one that was started again is another
LARGEST_REPLY = 4 << 20  # bytes; the grade of a lesson has some ten thousand
START_LIMIT = 600.0  # seconds; it imports PyTorch, from a disk that may be far away
IDLE_LIMIT = 120.0  # seconds after which a process without work ends itself
STILL_FRESH = 60.0  # seconds without work after which it gets no further work
_PROCESS = "from lessons_grading.judge_process import serve; serve()"
_idle: list["_Judge"] = []
_busy: dict["_Judge", str] = {}  # for which command each is at work
_lock = threading.Lock()


def look() -> str:
    """Says what there is on this worker: its instance, and what `judge_process.about` says."""
    try:
        judge = _take("")
    except _Lost as lost:
        return json.dumps({"instance": INSTANCE, "failed": str(lost)})
    _give_back(judge)
    return json.dumps({"instance": INSTANCE, "about": judge.about})


def grade(order: str) -> str:
    """Grades one submission.

    order: {"instance": of the worker that it is meant for; "command": whose it is;
        "course", "mistakes": their digests; "patience": seconds for a step; "work": for
        judge_process}.
    Returns {"grade": …}; {"failed": why}; {"lost": why} if the process that was to grade it is
    no more, or {"restarted": why} if the worker is; or {"other": why} if this machine is not
    what the order expects.
    """
    wanted = json.loads(order)
    if wanted["instance"] != INSTANCE:
        return json.dumps({"restarted": "its worker was started again"})
    judge = None
    try:
        judge = _take(wanted["command"])
        for part in ("course", "mistakes"):
            if judge.about[part] != wanted[part]:
                raise _Other(f"its {part} changed meanwhile")
        reply = judge.work(wanted["work"], wanted["patience"])
    except _Other as other:
        return json.dumps({"other": str(other)})
    except _Lost as lost:
        return json.dumps({"lost": str(lost)})
    finally:
        if judge:
            _give_back(judge)
    return reply


def stop(command: str):
    """Ends what is at work for this command."""
    with _lock:
        judges = [judge for judge, whose in _busy.items() if whose == command]
    for judge in judges:
        judge.end()


class _Lost(Exception):
    """The process that grades has ended, or has to."""


class _Other(Exception):
    """This worker is not what it was."""


class _Judge:
    """A process that grades one submission after another. It ends with the worker.

    used: until when it was at work.
    """

    used: float

    def __init__(self):
        self.pipe, theirs = Pipe()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROCESS, str(theirs.fileno())],
            stdin=subprocess.PIPE,  # it ends where this does
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,  # a signal for the worker is none for it
        )
        theirs.close()
        self.about = json.loads(self._next(START_LIMIT))

    def work(self, work: dict, patience: float) -> str:
        """The reply. Steps come before it, and each has its time."""
        with suppress(OSError):  # it has ended; `_next` will see that
            self.pipe.send_bytes(json.dumps(work).encode())
        while (reply := self._next(patience)) == "{}":
            pass
        return reply

    def _next(self, seconds: float) -> str:
        try:
            if self.pipe.poll(seconds):
                return self.pipe.recv_bytes(LARGEST_REPLY).decode()
            how = "it did not come to an end"
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
            how = f"the process that graded it ended, exit code {self.process.poll()}"
        self.end()
        raise _Lost(how)

    @property
    def is_fresh(self) -> bool:
        return self.process.poll() is None and time.monotonic() - self.used < STILL_FRESH

    def end(self):
        assert self.process.stdin is not None  # it is a pipe
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _take(command: str) -> _Judge:
    """A process without work, or a new one."""
    judge, stale = None, []
    with _lock:
        while _idle and not judge:
            taken = _idle.pop()
            if taken.is_fresh:
                judge = taken
                _busy[judge] = command
            else:
                stale.append(taken)
    for each in stale:
        each.end()
    if not judge:
        judge = _Judge()
        with _lock:
            _busy[judge] = command
    return judge


def _give_back(judge: _Judge):
    judge.used = time.monotonic()
    with _lock:
        _busy.pop(judge, None)
        if judge.process.poll() is None:
            _idle.append(judge)
