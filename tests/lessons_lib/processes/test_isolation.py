"""A run in its own process ends in one of six ways, and none of them reaches the caller."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading

import cloudpickle
import numpy as np
import pytest

from lessons_lib import run_isolated
from lessons_lib.processes import child

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_a_result_comes_back_with_what_was_printed():
    def answer(x):
        print("thinking")
        return x + 1

    outcome = run_isolated(answer, 41)
    assert (outcome.ending, outcome.value, outcome.printed) == ("returned", 42, "thinking\n")


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("k"), RuntimeError("x", 3), KeyboardInterrupt()]
)
def test_an_exception_comes_back_as_itself(error):
    def answer():
        raise error

    outcome = run_isolated(answer)
    assert (outcome.ending, type(outcome.error)) == ("raised", type(error))
    assert outcome.error.args == error.args


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__("odd")


class Silent(Exception):
    def __str__(self):
        raise SystemExit


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Odd(1, 2), "Odd: odd"),
        (lambda: ValueError("no"), "ValueError: no"),
        (lambda: ValueError(), "ValueError"),
        (lambda: Silent(), "Silent: (its text cannot be shown)"),
    ],
)
def test_an_exception_that_cannot_travel_comes_back_in_words(make, words):
    def answer():
        error = make()
        error.lock = threading.Lock()
        raise error

    outcome = run_isolated(answer)
    assert (outcome.ending, type(outcome.error)) == ("raised", RuntimeError)
    assert str(outcome.error) == words


ENDS = [
    (lambda: sys.exit(3), "exited", "exit(3)"),
    (lambda: sys.exit(None), "exited", "exit(None)"),
    (lambda: sys.exit("x" * 99), "exited", f"exit('{'x' * 79})"),
    *((lambda n=n: os._exit(n), "exited", f"exit code {n}") for n in (0, 3, 255)),
    *(
        (lambda n=n: os.kill(os.getpid(), n), "crashed", signal.strsignal(n) or f"signal {n}")
        for n in (signal.SIGSEGV, signal.SIGKILL, signal.SIGRTMIN + 1)
    ),
]


@pytest.mark.parametrize("end, ending, detail", ENDS)
def test_python_that_exits_or_crashes_says_with_what(end, ending, detail):
    outcome = run_isolated(lambda: (print("before", flush=True), end()))
    assert (outcome.ending, outcome.detail) == (ending, detail)
    assert outcome.printed == "before\n"


class Hostile:
    """Raises `error` when it is pickled, or when it is unpickled in another process than
    `home`.
    """

    def __init__(self, error, home=None):
        self.error, self.home = error, home

    def __reduce__(self):
        if self.home is None:
            raise self.error
        return raise_elsewhere, (self.error, self.home)


def raise_elsewhere(error, home):
    if os.getpid() != home:
        raise error


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), Own("mine"), ValueError("a lock: ")]
)
def test_whatever_pickling_raises_is_a_result(error):
    """In an argument, in a result, and when a result is read."""
    with pytest.raises(TypeError, match="cannot be sent to another process: ") as refused:
        run_isolated(lambda hostile: None, Hostile(error))
    assert ("a lock" in str(refused.value)) == isinstance(error, ValueError)
    outcome = run_isolated(lambda: Hostile(error))
    assert outcome.ending == "raised"
    assert str(outcome.error) == "The result cannot be sent back: it is of type Hostile"
    outcome = run_isolated(lambda: Hostile(error, os.getpid()))
    words = f"unreadable result, {type(error).__name__}"
    assert (outcome.ending, outcome.detail) == ("exited", words)
    outcome = run_isolated(lambda hostile: None, Hostile(error, os.getpid()))
    assert outcome.ending in ("exited", "raised")


# What it prints


def flush(text):
    sys.stdout.write(text)
    sys.stdout.flush()


PRINTED = {
    "half a line": (lambda: print("half", end=""), "half"),
    "from C": (lambda: ctypes.CDLL(None).printf(b"from C"), "from C"),
    "to both": (lambda: (print("one"), print("two", file=sys.stderr)), "one\ntwo\n"),
    "with its stream closed": (lambda: (sys.stdout.close(), os.write(1, b"a line")), "a line"),
    "without a stream": (lambda: setattr(sys, "stdout", None), ""),
    "half a letter": (lambda: os.write(1, "…".encode()[:2]), "\N{REPLACEMENT CHARACTER}"),
    "all that is kept": (lambda: flush("x" * 2_000), "x" * 2_000),
    "one more": (lambda: flush("x" * 2_001), "x" * 2_000 + "\n… (cut: too long)"),
    "once the end is closed": (lambda: (os.write(1, b"a"), os.close(1), os.close(2)), "a"),
}


@pytest.mark.parametrize("prints, text", PRINTED.values(), ids=PRINTED)
def test_the_start_of_what_a_run_prints_comes_back(prints, text):
    outcome = run_isolated(lambda: prints() and None)
    assert (outcome.ending, outcome.printed) == ("returned", text)


def test_a_flood_is_cut_and_does_not_block():
    outcome = run_isolated(
        lambda: [print("x" * 10_000) for _ in range(1_000)] and None, time_limit=20
    )
    assert outcome.ending == "returned" and len(outcome.printed) < 2_100


@pytest.mark.parametrize(
    "length, ending, detail", [(10, "timed out", "0.5 s"), (11, "flooded", "10 bytes")]
)
def test_a_run_may_print_up_to_its_limit(length, ending, detail):
    def answer(report):
        report("half")
        flush("x" * length)
        threading.Event().wait()

    outcome = run_isolated(
        answer, time_limit=0.5, report=True, on_report=lambda value: None, output_limit=10
    )
    assert (outcome.ending, outcome.detail, outcome.printed, outcome.last_report) == (
        ending,
        detail,
        "x" * length,
        "half",
    )


# What it finds


def test_a_run_finds_imported_what_checks_need_and_its_garbage_collection_leaves_that_out():
    modules, num_frozen = run_isolated(lambda: ({*sys.modules}, gc.get_freeze_count())).value
    assert {"torch", "lessons_lib.checks", "psutil"} < modules and num_frozen > 0


def test_what_stands_in_the_main_module_is_not_run_again():
    # pytest's own script is __main__ here; running it again in the child would start the tests
    # anew.
    main = run_isolated(lambda: sys.modules["__main__"].__dict__.get("__file__"))
    assert main.value is None


def test_memory_has_a_limit_and_what_comes_after_the_answer_a_reserve():
    def answer(report):
        size = child.MEMORY_LIMIT + child.MEMORY_RESERVE // 2

        def take(*_):
            return np.empty(size, np.uint8).nbytes == size  # reserved, and not written

        report(child.keeping_reserve(take, otherwise=lambda error: [error, take()]))
        report(child.keeping_reserve(divmod, 7, 2, otherwise=None))
        with contextlib.suppress(ZeroDivisionError):
            child.keeping_reserve(divmod, 7, 0, otherwise=None)
        report(take())
        child.use_reserve(False)
        take()

    reports = []
    outcome = run_isolated(answer, report=True, on_report=reports.append)
    (error, is_there), result, is_there_again = reports
    assert isinstance(error, MemoryError) and is_there
    assert result == (3, 1) and is_there_again
    assert outcome.ending == "raised" and isinstance(outcome.error, MemoryError)


def test_many_at_once():
    results, main = [], sys.modules["__main__"]
    threads = [
        threading.Thread(target=lambda n=n: results.append(run_isolated(lambda: n * n).value))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [n * n for n in range(8)]
    # hidden while a process starts, and back afterwards
    assert sys.modules["__main__"] is main
