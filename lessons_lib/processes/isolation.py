"""Runs a function in a separate process. So a crash, a loop or much output does no harm here.

A forkserver keeps a process that has imported PyTorch. Each run is a fork of it, ready in tens
of milliseconds. (A plain fork hangs once the parent has used PyTorch. A fresh process takes
seconds to import it.)
"""

import atexit
import functools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import forkserver, spawn
from multiprocessing.connection import wait
from multiprocessing.process import ORIGINAL_DIR  # type: ignore[attr-defined]
from typing import Any

from lessons_lib import rooms
from lessons_lib.processes import child, pickles, process_tree, start
from lessons_lib.processes.child import BUSY, FORGET, Call, describe_error
from lessons_lib.processes.cpu_time import Stopwatch, observe_session

LOOK_EVERY = 0.1  # seconds between two looks at the time of a run
START_LIMIT = 180.0  # seconds for a process to start; the first waits for PyTorch
START_ATTEMPTS = 20
ENDING_LIMIT = 1.0  # seconds that a run may take to end after it has returned
PRINTED_LIMIT = 2_000  # characters of a run's output that are kept
# the most times that a run's processes are killed, if they start more and more
MOST_ROUNDS = 1_000
_context = multiprocessing.get_context("forkserver")
# Imported in the forkserver, so that no run has to import them.
_context.set_forkserver_preload([*rooms.PRELOADED, "lessons_lib.processes.frozen", "psutil"])


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    ending: "returned" (with `value`), "raised" (with `error`), or "crashed", "exited",
        "timed out" or "flooded" (with `detail`).
    printed: the start of the text that the run printed.
    last_report: the last value that it passed to `report`, or None.
    """

    ending: str
    value: Any = None
    error: BaseException | None = None
    detail: str = ""
    printed: str = ""
    last_report: Any = None


def warm_up():
    """Starts the forkserver without waiting for it, so that the first run is quick too."""
    with without_main_module():
        ensure_server()


def ensure_server():
    """Starts the forkserver if it does not run.

    It imports no module from a learner's folder.
    """
    with start.safely():
        forkserver.ensure_running()


def run_isolated(
    function: Callable[..., object],
    *args: object,
    time_limit: float = 10.0,
    report: bool = False,
    on_report: Callable[[Any], float | None] | None = None,
    output_limit: float = math.inf,
) -> Outcome:
    """Calls `function(*args)` in a separate process and waits for the result.

    A function of the notebook is sent as its code, with the globals that it uses.

    time_limit: seconds of the run's own time (cpu_time.py). Waiting for a processor does not
        count, so a run that ends in time on a quiet machine also ends in time on a busy one.
        By the clock, the run may take BUSY times as long.
    report: whether the function gets a keyword argument `report`, a callable that sends a
        small object back during the run.
    on_report: called here with each of these objects, while the run waits. If it returns a
        number, that is the new time limit from then on. `report(object, waits=False)` does not
        wait, and leaves the limit as it is.
    output_limit: bytes. A run that writes more is ended.
    Raises TypeError if the function or an argument cannot be sent to another process.
    """
    try:
        data = pickles.dumps((function, args))
    except BaseException as error:  # pickling an answer may raise anything, even SystemExit
        words = describe_error(error)
        words = (
            words.removeprefix(f"{type(error).__name__}: ")
            if isinstance(error, Exception)
            else words
        )
        raise TypeError(f"This cannot be sent to another process: {words}") from None

    call = Call(data, time_limit, report, on_report is not None)
    attempt = 1
    while True:
        try:
            return _run(call, on_report, output_limit)
        except (EOFError, ConnectionError) as error:  # the forkserver was killed
            if attempt == START_ATTEMPTS:
                raise RuntimeError(
                    f"No process could be started to run this in: {error!r}. "
                    "Restart the kernel."
                ) from None
            time.sleep(0.2)  # gives the system time to notice
            attempt += 1


def _run(call: Call, on_report, output_limit: float) -> Outcome:
    child = _take_waiting() or _Child()
    try:
        child.results.send(call)
        outcome = _follow(child, call.time_limit, on_report, output_limit)
        if outcome.ending == "returned":
            # the process cleans up quicker than this one would
            child.process.join(ENDING_LIMIT)
        return outcome
    finally:
        child.end()
        _start_soon()


class _Child:
    """A process that waits for a call."""

    def __init__(self):
        self.place = _place()
        self.results, results = _context.Pipe()
        self.output, write_output = _context.Pipe(duplex=False)
        self.process = _context.Process(
            target=child.serve, args=(results, write_output), name=_NAME, daemon=True
        )
        try:
            ensure_server()
            self.process.start()
        except BaseException:
            self.end()
            raise
        finally:
            results.close()
            write_output.close()

    def is_alive(self) -> bool:
        """Whether the process lives. The forkserver says so late: it waits for it first."""
        assert self.process.pid is not None  # it has been started
        try:
            os.kill(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return self.process.is_alive()

    def end(self):
        """Ends the process, and all processes that the call has started."""
        if self.process.pid is not None:
            for _ in range(MOST_ROUNDS):
                if not process_tree.kill(self.process.pid):
                    break
            self.process.kill()
            self.process.join()
        self.results.close()
        self.output.close()


_NAME = "a check of the lessons"
_prepare = spawn.get_preparation_data


def _prepare_without_main(name: str) -> dict:
    """The settings that a new process starts with.

    The process of a run does not import the main module. (Hiding that module, as
    `without_main_module` does, would disturb the main thread.) In every new process, a
    learner's own queue.py comes after Python's.
    """
    data = _prepare(name)
    path = data["sys_path"]
    # "" means the folder that is current now, not when the forkserver started
    with suppress(OSError):
        path = [*path, *([os.getcwd()] if "" in sys.path else [])]
    data["sys_path"] = start.learners_last(path, ORIGINAL_DIR)
    if name == _NAME:
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


spawn.get_preparation_data = _prepare_without_main

# At most one process. It is started after each run, so that the next run need not wait.
_waiting: list[_Child] = []
_starting = threading.RLock()
_starter: threading.Thread | None = None


def _start_soon():
    global _starter
    starter = threading.Thread(target=_start_waiting, daemon=True)
    # no thread can be started: then the next run starts its process
    with suppress(RuntimeError):
        starter.start()
        _starter = starter


def _start_waiting():
    # if this fails, the next run starts a process
    with _starting, suppress(EOFError, OSError):
        if not _waiting:
            _waiting.append(_Child())


def _take_waiting() -> _Child | None:
    """The waiting process, if it has the folder and path that a new process would have."""
    with _starting:
        child = _waiting.pop() if _waiting else None
    if child is None or child.place == _place() and child.is_alive():
        return child
    child.end()
    return None


def _place() -> tuple:
    """The folder and the path that a new process takes over from this process."""
    with suppress(OSError):
        return os.getcwd(), *sys.path
    return None, *sys.path


def end_waiting():
    """Ends the process that waits for the next run."""
    if _starter:
        _starter.join()
    if child := _take_waiting():
        child.end()


def _forget_waiting():
    """Called in a fork of this process.

    The waiting process and its starter are the parent's.
    """
    global _starting, _starter
    _waiting.clear()
    _starting, _starter = threading.RLock(), None


os.register_at_fork(after_in_child=_forget_waiting)


@atexit.register  # before multiprocessing waits for it
def _end_waiting_for_good():
    end_waiting()
    _starting.acquire()  # so that no other thread starts one


def _follow(child: "_Child", time_limit, on_report, output_limit) -> Outcome:
    """Reads reports and output until the run ends in one way or another."""
    process, results, output = child.process, child.results, child.output
    assert process.pid is not None  # it has been started
    time_of_run = _TimeOfRun(process.pid)
    printed = Printed()
    last_report = None

    def ended(ending: str, detail: str = "") -> Outcome:
        text = printed.text()
        return Outcome(ending, detail=detail, printed=text, last_report=last_report)

    sources: set[Any] = {results, output, process.sentinel}
    while not time_of_run.is_over():
        ready = wait(list(sources), LOOK_EVERY)
        if output in ready and not printed.read(output.fileno()):
            sources.discard(output)
        if printed.length > output_limit:
            return ended("flooded", f"{output_limit} bytes")
        if results in sources and results.poll(0):
            try:
                kind, value = results.recv()
            except (EOFError, ConnectionError):
                sources.discard(results)
                continue
            except BaseException as error:  # the answer broke the pipe, or its result raised
                return ended("exited", f"unreadable result, {type(error).__name__}")
            if kind == "started":
                time_of_run.begin(time_limit)
            elif kind == "report":
                last_report, waits = value
                if on_report:
                    with time_of_run.paused():
                        seconds = on_report(last_report)
                    if waits and seconds is not None:
                        time_of_run.begin(seconds)
                    if waits:
                        with suppress(OSError):  # the run has ended; the next look shows it
                            results.send(seconds)
            else:
                printed.drain(output)
                field = {"returned": "value", "raised": "error", "exited": "detail"}[kind]
                return replace(ended(kind), **{field: value})
        elif process.sentinel in ready:
            if not time_of_run.has_begun():
                raise ConnectionError("its process ended before the call began")
            printed.drain(output)
            process.join(START_LIMIT)  # the forkserver reports at once how it ended
            return ended(*ending_of(process.exitcode))
    return ended("timed out", f"{time_of_run.limit:g} s")


class _TimeOfRun:
    """The time that a run may take: its limit in own time, and BUSY times as much by the
    clock.

    Before it begins, it may take START_LIMIT to start.
    """

    def __init__(self, session: int):
        self.session, self.limit = session, START_LIMIT
        self._stopwatch: Stopwatch | None = None
        self._deadline = time.monotonic() + START_LIMIT

    def begin(self, limit: float):
        """From now on the run may take `limit` seconds."""
        self.limit, self._deadline = limit, time.monotonic() + BUSY * limit
        self._stopwatch = Stopwatch(
            functools.partial(observe_session, self.session), LOOK_EVERY
        )

    def has_begun(self) -> bool:
        return self._stopwatch is not None

    def is_over(self) -> bool:
        return (
            time.monotonic() > self._deadline
            or self._stopwatch is not None
            and self._stopwatch.look() > self.limit
        )

    @contextmanager
    def paused(self):
        """Stops the time while the run waits for its parent."""
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self._deadline += seconds
        assert self._stopwatch is not None  # begin() comes before waiting
        self._stopwatch.leave_out(seconds)


def ending_of(code: int | None) -> tuple[str, str]:
    """How a process ended, as in Outcome. code: its exit code, negative for a signal."""
    if code is not None and code < 0:
        return "crashed", signal.strsignal(-code) or f"signal {-code}"
    return "exited", f"exit code {code}"


class Printed:
    """Keeps the first part of a run's output and throws the rest away."""

    def __init__(self):
        self.data, self.length, self.is_cut = b"", 0, False

    def read(self, output: int) -> bool:
        """Reads from a file descriptor. Returns whether there was any text."""
        chunk = os.read(output, 1 << 16)
        self.length += len(chunk)
        _, forgets, last = chunk.rpartition(FORGET)
        self.data = (b"" if forgets else self.data) + last
        self.is_cut = (self.is_cut and not forgets) or len(self.data) > PRINTED_LIMIT
        self.data = self.data[:PRINTED_LIMIT]
        return bool(chunk)

    def drain(self, output):
        while (
            wait([output], 0)
            and self.read(output.fileno())
            and self.length <= 100 * PRINTED_LIMIT
        ):
            pass

    def text(self) -> str:
        text = self.data.decode(errors="replace")
        return text + ("\n… (cut: too long)" if self.is_cut else "")


_one_at_a_time = threading.Lock()


@contextmanager
def without_main_module():
    """Hides `__main__` while a process starts.

    Otherwise multiprocessing would import it again.
    """
    with _one_at_a_time:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
