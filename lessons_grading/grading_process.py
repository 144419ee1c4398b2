"""Processes that grade, one submission after another, seen from outside.

No submission can end or block more than one of them, and its grade is then lost for this time.
They are started by the command, or by a worker of Dask, and end with it. This file needs
Python alone, so that a worker of Dask has no need of PyTorch. What runs in the processes is in
grading_server.py.

Libraries for such processes (pebble, concurrent.futures) start them with multiprocessing,
which a worker of Dask may not do.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import Pipe
from typing import NamedTuple

LARGEST_REPLY = 4 << 20  # bytes; the grade of a lesson has some ten thousand
# seconds for what is no part of a submission's time: to import PyTorch from a disk that may be
# far away, to start a sandbox, to compare results
OF_THE_JUDGE = 900.0
_PROCESS = "from lessons_grading.grading_server import serve; serve()"


class Workers(NamedTuple):
    """Processes that grade, on this machine or elsewhere.

    submit: gives them an order, as JSON. The reply is JSON too.
    room: how many orders they may have now. Raises ConnectionError if there will be no room.
    """

    submit: Callable[[bytes], Future]
    room: Callable[[], int]


class GradingProcess:
    """One such process. It ends with the process that has started it."""

    def __init__(self):
        self.pipe, theirs = Pipe()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROCESS, str(theirs.fileno())],
            stdin=subprocess.PIPE,  # it ends where this does
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,  # Ctrl-C is for the command, which then ends this
        )
        theirs.close()

    def reply(self, order: bytes, seconds: float) -> bytes:
        """The reply to an order of grading_server.py. If there is none, it says why in JSON,
        and the process has ended.
        """
        with suppress(OSError):  # it has ended; then nothing comes
            self.pipe.send_bytes(order)
        try:
            if self.pipe.poll(seconds + OF_THE_JUDGE):
                return self.pipe.recv_bytes(LARGEST_REPLY)
            how = "it did not come to an end"
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
            how = f"the process that graded it ended, exit code {self.process.poll()}"
        self.end()
        self.pipe.close()
        return _failed(how)

    def end(self):
        assert self.process.stdin is not None  # it is a pipe
        with suppress(OSError):
            self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class GradingProcesses:
    """As many processes as there are threads that ask for a grade at once."""

    def __init__(self):
        self._idle: list[GradingProcess] = []
        self._all: set[GradingProcess] = set()
        self._lock, self._is_closed = threading.Lock(), False

    def grade(self, order: bytes, seconds: float) -> bytes:
        """The reply to an order, whatever becomes of the process. Both are JSON.

        seconds: that the submission may take.
        """
        with self._lock:
            if self._is_closed:
                return _failed("it was stopped")
            process = self._idle.pop() if self._idle else GradingProcess()
            self._all.add(process)
        reply = process.reply(order, seconds)
        if not process.pipe.closed:
            with self._lock:
                self._idle.append(process)
        return reply

    def close(self):
        with self._lock:
            self._is_closed = True
        for process in self._all:  # no more come now
            process.end()


def _failed(reason: str) -> bytes:
    return json.dumps({"failed": reason}).encode()
