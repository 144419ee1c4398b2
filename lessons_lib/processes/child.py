"""A process that waits for a function, calls it, and sends back what became of it."""

import ctypes
import math
import os
import pickle
import resource
import signal
import sys
from contextlib import suppress
from typing import NamedTuple

from lessons_lib.processes import linux, pickles, process_tree

BUSY = 10  # on busy processors a run may take this many times its limit by the clock
MEMORY_LIMIT = 4 << 30  # bytes that a run may take on top of PyTorch
MEMORY_RESERVE = 1 << 30  # further bytes, to judge an answer that has used those up
FORGET = b"\x1e"  # in a run's output: what came before it is not kept


class Call(NamedTuple):
    """What is called, and how.

    data: the function and its arguments, from pickles.dumps.
    time_limit: seconds.
    reports: whether the function gets `report`.
    waits: whether a report waits for an answer.
    """

    data: bytes
    time_limit: float
    reports: bool
    waits: bool


def serve(results, write_output):
    """Splits into two processes: one makes the call that `results` brings, this one cleans up.

    This one waits for the call to end and then ends every process that is left of it.
    """
    os.setsid()
    process_tree.adopt_orphans()
    if caller := process_tree.split():
        results.close()
        write_output.close()
        process_tree.see_out(caller)
    try:
        call = results.recv()
    except (EOFError, OSError):  # nobody has a call for us any more
        os._exit(0)
    _make(call, results, write_output)


def _make(call: Call, results, write_output):
    _end_by_itself(call.time_limit)
    _limit_memory()
    os.dup2(write_output.fileno(), 1)
    os.dup2(write_output.fileno(), 2)
    write_output.close()
    sys.stdout, sys.stderr = (
        open(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number in (1, 2)
    )
    results.send(("started", None))

    def report(value, waits: bool = True):
        waits = waits and call.waits
        results.send(("report", (value, waits)))
        # The parent answers when it has the report, perhaps with a new limit.
        if waits and (seconds := results.recv()) is not None:
            _end_by_itself(seconds)

    try:
        function, args = pickle.loads(call.data)
        keywords = {"report": report} if call.reports else {}
        message = ("returned", function(*args, **keywords))
    except SystemExit as stop:
        message = ("exited", f"exit({stop.code!r:.80})")
    except BaseException as error:
        message = ("raised", error)
    with suppress(Exception):
        _flush()
    results.send_bytes(_pickle_message(message))
    os._exit(0)  # at once, even if the answer left threads running


def _end_by_itself(time_limit: float):
    """Ends this process some time after its limit, in case the notebook's kernel is gone."""
    signal.alarm(math.ceil(BUSY * time_limit) + 5)


def _limit_memory():
    """Limits the process's data, so that an endlessly growing list ends in a MemoryError.

    Its address space has no limit, because CUDA reserves a lot of it without using it.
    On Linux only (linux.py).
    """
    with suppress(OSError, ValueError):
        limit = linux.data_pages() * resource.getpagesize() + MEMORY_LIMIT
        most = limit + MEMORY_RESERVE
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        _limits[:] = (limit, most), (most, most)


_limits: list[tuple[int, int]] = []  # without and with the reserve; none if there is no limit


def use_reserve(used: bool):
    """Whether the process may use its reserve of memory from now on.

    It makes no objects, because there may be no memory for them.
    """
    if _limits:
        resource.setrlimit(resource.RLIMIT_DATA, _limits[used])


def keeping_reserve(function, *arguments, otherwise):
    """Calls what may take all memory but the reserve, which is there for what comes after it.

    Returns `otherwise(error)` if the function found too little memory.
    """
    use_reserve(False)
    try:
        return function(*arguments)
    except MemoryError as error:
        use_reserve(True)
        return otherwise(error)
    finally:
        use_reserve(True)


def _flush():
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # what C++ printed


def _pickle_message(message) -> bytes:
    try:
        data = pickles.dumps(message)
        pickle.loads(data)  # some exceptions can be pickled but not read back
        return data
    except BaseException:
        kind, value = message
        if kind == "raised":
            return pickle.dumps((kind, RuntimeError(describe_error(value))))
        return pickle.dumps(
            (
                "raised",
                TypeError(
                    f"The result cannot be sent back: it is of type {type(value).__name__}"
                ),
            )
        )


def describe_error(error: BaseException) -> str:
    """An exception in words, even if its own `__str__` fails."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def keep_printed(begins: bool):
    """In a run: forgets what it has printed. If not `begins`, keeps that and no more."""
    _flush()
    if begins:
        os.write(1, FORGET)
    else:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)
