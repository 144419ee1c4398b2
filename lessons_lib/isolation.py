"""Runs a function in a process of its own, so that a crash, a loop or a flood of output stays there.

A forkserver holds a process that has imported PyTorch; each run is a fork of it, ready in tens of milliseconds.
(Plain fork hangs once the parent has used PyTorch, and a fresh process takes seconds to import it.)
"""

import ctypes
import math
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import time
import types
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait

import cloudpickle

START_LIMIT = 60.0  # seconds for the process to start; the first one waits until PyTorch is imported
START_ATTEMPTS = 5
PRINTED_LIMIT = 2_000  # characters of a run's output that are kept
MEMORY_LIMIT = 4 << 30  # bytes that a run may take beside PyTorch itself
_PRELOAD = ["torch", "lessons_lib.checks", "paged_attention.ladder", "lessons_lib.frozen"]  # so that no run imports them

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOAD)


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    `ending`: "returned" (with `value`), "raised" (with `error`), "crashed", "exited", "timed out" or "flooded" (with
    `detail`).
    `printed`: the start of what the run wrote. `last_report`: what it passed to `report` last, or None.
    """

    ending: str
    value: object = None
    error: BaseException | None = None
    detail: str = ""
    printed: str = ""
    last_report: object = None


def warm_up():
    """Starts the forkserver without waiting for it, so that the first run is as quick as the rest."""
    from multiprocessing import forkserver

    with without_main_module():
        forkserver.ensure_running()


def run_isolated(function, *args, time_limit: float = 10.0, report: bool = False, on_report=None,
                 output_limit: float = math.inf) -> Outcome:
    """Calls `function(*args)` in a process of its own and waits at most `time_limit` seconds.

    Functions of the notebook travel by value, with the globals that they use. `report=True` passes the function a
    keyword `report`, a callable that sends a small object back while it runs. `on_report` is called with each of these
    here, while the run waits; a number that it returns is the new time limit, from then on.
    A run that writes more than `output_limit` bytes is ended.
    Raises TypeError when the function or an argument cannot be sent to another process.
    """
    try:
        call = cloudpickle.dumps((function, args))
    except Exception as error:
        raise TypeError(f"This cannot be sent to another process: {error}") from None

    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            return _run(call, time_limit, report, on_report, output_limit)
        except (EOFError, ConnectionError) as error:  # the forkserver was killed; the next try starts a new one
            if attempt == START_ATTEMPTS:
                raise RuntimeError(f"No process could be started to run this in: {error!r}. Restart the kernel.") from None
            time.sleep(0.2)  # until the system has noticed that it is gone


def _run(call: bytes, time_limit: float, report: bool, on_report, output_limit: float) -> Outcome:
    results, send_results = _context.Pipe(duplex=on_report is not None)
    output, write_output = _context.Pipe(duplex=False)
    process = _context.Process(target=_run_in_child, args=(call, time_limit, report, send_results, write_output),
                               daemon=True)
    try:
        with without_main_module():
            process.start()
        send_results.close()
        write_output.close()
        return _follow(process, results, output, time_limit, on_report, output_limit)
    finally:
        _end(process)
        for end in (results, send_results, output, write_output):
            end.close()


def _run_in_child(call: bytes, time_limit: float, report: bool, send_results, write_output):
    os.setsid()  # a session of its own: what the answer starts ends with it
    signal.alarm(math.ceil(time_limit) + 5)  # should the notebook's kernel be gone by then, nobody else would end this
    _limit_memory()
    os.dup2(write_output.fileno(), 1)
    os.dup2(write_output.fileno(), 2)
    write_output.close()
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    send_results.send(("started", None))

    def send_report(value):
        send_results.send(("report", value))
        if send_results.readable:
            send_results.recv()  # until it has arrived where it is wanted

    try:
        function, args = pickle.loads(call)
        keywords = {"report": send_report} if report else {}
        message = ("returned", function(*args, **keywords))
    except SystemExit as stop:
        message = ("exited", f"exit({stop.code!r:.80})")
    except BaseException as error:
        message = ("raised", error)
    with suppress(Exception):
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # what C++ printed
    send_results.send_bytes(_pickle_message(message))
    os._exit(0)  # at once: threads that the answer left running do not keep the process


def _pickle_message(message) -> bytes:
    try:
        data = cloudpickle.dumps(message)
        pickle.loads(data)  # some exceptions pickle but do not come back
        return data
    except Exception:
        kind, value = message
        if kind == "raised":
            return pickle.dumps((kind, RuntimeError(describe_error(value))))
        return pickle.dumps(("raised", TypeError(f"The result cannot be sent back: it is of type {type(value).__name__}")))


def describe_error(error: BaseException) -> str:
    """An exception in words, even where its own words fail."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def _limit_memory():
    """Bounds the process's data, so that a list that grows for ever ends as a MemoryError and not with the machine.

    Not the address space, of which CUDA reserves a great deal without using it.
    """
    with suppress(OSError, ValueError):
        data_pages = int(open("/proc/self/statm").read().split()[5])
        limit = data_pages * resource.getpagesize() + MEMORY_LIMIT
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _follow(process, results, output, time_limit, on_report, output_limit) -> Outcome:
    """Reads reports and output until the run ends, in whichever way."""
    limit, deadline = START_LIMIT, time.monotonic() + START_LIMIT
    printed, last_report = _Printed(), None
    sources = {results, output, process.sentinel}
    while time.monotonic() < deadline:
        ready = wait(list(sources), max(0.0, deadline - time.monotonic()))
        if output in ready and not printed.read(output):
            sources.discard(output)
        if printed.length > output_limit:
            return Outcome("flooded", detail=f"{output_limit} bytes", printed=printed.text(), last_report=last_report)
        if results in sources and results.poll(0):
            try:
                kind, value = results.recv()
            except (EOFError, ConnectionError):
                sources.discard(results)
                continue
            except Exception as error:  # what came cannot be read: most likely the answer wrote into our pipe
                return Outcome("exited", detail=f"unreadable result, {type(error).__name__}", last_report=last_report)
            if kind == "started":
                limit, deadline = time_limit, time.monotonic() + time_limit
            elif kind == "report":
                last_report, paused = value, time.monotonic()
                if on_report:
                    seconds = on_report(value)
                    limit = limit if seconds is None else seconds
                    deadline = time.monotonic() + (deadline - paused if seconds is None else seconds)
                    with suppress(OSError):  # it has ended, as we shall see
                        results.send(None)
            else:
                printed.drain(output)
                field = {"returned": "value", "raised": "error", "exited": "detail"}[kind]
                return Outcome(kind, **{field: value}, printed=printed.text(), last_report=last_report)
        elif process.sentinel in ready:
            printed.drain(output)
            return Outcome(*_how_it_died(process), printed=printed.text(), last_report=last_report)
    return Outcome("timed out", detail=f"{limit:g} s", printed=printed.text(), last_report=last_report)


def _how_it_died(process) -> tuple:
    process.join(1.0)
    code = process.exitcode
    if code is not None and code < 0:
        return "crashed", None, None, signal.strsignal(-code) or f"signal {-code}"
    return "exited", None, None, f"exit code {code}"


def _end(process):
    """Ends the run and all that it started: the compiler's processes have groups of their own, but not sessions."""
    if process.pid is None:
        return
    for pid in _processes():
        with suppress(OSError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.kill()
    process.join()


def _processes() -> list[int]:
    import psutil  # comes with ipykernel

    return psutil.pids()


class _Printed:
    """Keeps the first part of what a run writes and throws the rest away."""

    def __init__(self):
        self.data, self.length = b"", 0

    def read(self, output) -> bool:
        chunk = os.read(output.fileno(), 1 << 16)
        self.length += len(chunk)
        self.data += chunk[: max(0, PRINTED_LIMIT - len(self.data))]
        return bool(chunk)

    def drain(self, output):
        while wait([output], 0) and self.read(output):
            if self.length > 100 * PRINTED_LIMIT:
                break

    def text(self) -> str:
        text = self.data.decode(errors="replace")
        return text + ("\n… (cut: too long)" if self.length > PRINTED_LIMIT else "")


_one_at_a_time = threading.Lock()


@contextmanager
def without_main_module():
    """Hides `__main__` while a process starts: multiprocessing would import the caller's script there again."""
    with _one_at_a_time:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
