"""Runs a function in a process of its own, so that a crash, a loop or a flood of output stays there.

A forkserver holds a process that has imported PyTorch; each run is a fork of it, ready in tens of milliseconds.
(Plain fork hangs once the parent has used PyTorch, and a fresh process takes seconds to import it.)
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import time
import types
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait

import cloudpickle

START_LIMIT = 60.0  # seconds for the process to start; the first one waits until PyTorch is imported
PRINTED_LIMIT = 2_000  # characters of a run's output that are kept
_PRELOAD = ["torch", "lessons_lib.checks"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOAD)


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    `ending`: "returned" (with `value`), "raised" (with `error`), "crashed", "exited" or "timed out" (with `detail`).
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

    with _without_main_module():
        forkserver.ensure_running()


def run_isolated(function, *args, time_limit: float = 10.0, report: bool = False) -> Outcome:
    """Calls `function(*args)` in a process of its own and waits at most `time_limit` seconds.

    Functions of the notebook travel by value, with the globals that they use. `report=True` passes the function a
    keyword `report`, a callable that sends a small object back while it runs.
    Raises TypeError when the function or an argument cannot be sent to another process.
    """
    try:
        call = cloudpickle.dumps((function, args))
    except Exception as error:
        raise TypeError(f"This cannot be sent to another process: {error}") from None

    results, send_results = _context.Pipe(duplex=False)
    output, write_output = _context.Pipe(duplex=False)
    process = _context.Process(target=_run_in_child, args=(call, report, send_results, write_output), daemon=True)
    with _without_main_module():
        process.start()
    send_results.close()
    write_output.close()
    try:
        return _follow(process, results, output, time_limit)
    finally:
        _end(process)
        results.close()
        output.close()


def _run_in_child(call: bytes, report: bool, send_results, write_output):
    os.setsid()  # a process group of its own: what the answer starts ends with it
    os.dup2(write_output.fileno(), 1)
    os.dup2(write_output.fileno(), 2)
    write_output.close()
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    send_results.send(("started", None))
    try:
        function, args = pickle.loads(call)
        keywords = {"report": lambda value: send_results.send(("report", value))} if report else {}
        message = ("returned", function(*args, **keywords))
    except SystemExit as stop:
        message = ("exited", f"exit({stop.code!r})")
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
            return pickle.dumps((kind, RuntimeError(f"{type(value).__name__}: {value}")))
        return pickle.dumps(("raised", TypeError(f"The result cannot be sent back: {value!r:.200}")))


def _follow(process, results, output, time_limit) -> Outcome:
    """Reads reports and output until the run ends, in whichever way."""
    deadline = time.monotonic() + START_LIMIT
    printed, last_report = _Printed(), None
    sources = {results, output, process.sentinel}
    while True:
        ready = wait(list(sources), max(0.0, deadline - time.monotonic()))
        if output in ready and not printed.read(output):
            sources.discard(output)
        if results in ready:
            try:
                kind, value = results.recv()
            except (EOFError, OSError):
                sources.discard(results)
                kind = None
            if kind == "started":
                deadline = time.monotonic() + time_limit
            elif kind == "report":
                last_report = value
            elif kind is not None:
                printed.drain(output)
                field = {"returned": "value", "raised": "error", "exited": "detail"}[kind]
                return Outcome(kind, **{field: value}, printed=printed.text(), last_report=last_report)
        elif process.sentinel in ready:
            printed.drain(output)
            return Outcome(*_how_it_died(process), printed=printed.text(), last_report=last_report)
        if not ready and time.monotonic() >= deadline:
            return Outcome("timed out", detail=f"{time_limit:g} s", printed=printed.text(), last_report=last_report)


def _how_it_died(process) -> tuple:
    process.join(1.0)
    code = process.exitcode
    if code is not None and code < 0:
        return "crashed", None, None, signal.strsignal(-code) or f"signal {-code}"
    return "exited", None, None, f"exit code {code}"


def _end(process):
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


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


@contextmanager
def _without_main_module():
    """Hides `__main__` while a process starts: multiprocessing would import the caller's script there again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
