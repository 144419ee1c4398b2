"""A process that waits for a function, calls it, and sends back its result or its error."""

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

BUSY = 10  # a run may take its time limit this many times by the clock, if processors are busy
MEMORY_LIMIT = 4 << 30  # bytes that a run may use on top of PyTorch
MEMORY_RESERVE = 1 << 30  # further bytes, for judging an answer that has used up its own
FORGET = b"\x1e"  # in a run's output: the text before it is thrown away


class Call(NamedTuple):
    """A function to call, and how to call it.

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
    """Forks into two processes. One makes the call that `results` brings, the other cleans up.

    This process cleans up: it waits for the call to end, and then ends all processes that the
    call has left.
    """
    os.setsid()
    process_tree.adopt_orphans()
    if caller := process_tree.split():
        results.close()
        write_output.close()
        process_tree.see_out(caller)
    try:
        call = results.recv()
    except (EOFError, OSError):  # the notebook's process has closed the pipe: there is no call
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
    """Ends this process some time after its limit, even if the notebook's kernel is gone."""
    signal.alarm(math.ceil(BUSY * time_limit) + 5)


def _limit_memory():
    """Limits the data of this process, so that an endlessly growing list raises MemoryError.

    Its address space has no limit, because CUDA reserves a lot of it without using it.
    This works on Linux only (linux.py).
    """
    with suppress(OSError, ValueError):
        limit = linux.data_pages() * resource.getpagesize() + MEMORY_LIMIT
        most = limit + MEMORY_RESERVE
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        _limits[:] = (limit, most), (most, most)


# without the reserve and with it; empty if memory has no limit
_limits: list[tuple[int, int]] = []


def use_reserve(used: bool):
    """Lets the process use its reserve of memory, or stops it from doing so.

    Makes no objects, because there may be no memory for them.
    """
    if _limits:
        resource.setrlimit(resource.RLIMIT_DATA, _limits[used])


def keeping_reserve(function, *arguments, otherwise):
    """Calls the function with the reserve of memory locked.

    So if the function uses up all other memory, the code after the call still has the reserve.
    Returns `otherwise(error)` if the function raised MemoryError.
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
    ctypes.CDLL(None).fflush(None)  # writes the text that C++ has printed


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
    """Call it with True: printed text before this is forgotten. With False: later text is."""
    _flush()
    if begins:
        os.write(1, FORGET)
    else:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)
