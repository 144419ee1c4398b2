"""How a process makes its call and what it sends back. What it asks of the system goes to a
stand-in, for here it would change the tests' own process.
"""

import builtins
import ctypes
import io
import os
import pickle
import sys
import threading
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from lessons_processes import one_call, process_family
from lessons_processes.one_call import Call

GB = 1 << 30
STATM = "10 20 30 40 50 60 70"  # pages; the data are the sixth number
PAGE = 1_000  # bytes


class Left(BaseException):
    """The process would have ended here."""


class System:
    """A stand-in for the module `os` and for `open`, with its own table of descriptors."""

    O_WRONLY, devnull = os.O_WRONLY, os.devnull

    def __init__(self):
        self.table, self.asked, self.opened = {}, [], []

    def setsid(self):
        self.asked.append("a session")

    def _exit(self, code):
        raise Left(code)

    def dup2(self, old, new):
        self.table[new] = self.table.get(old, old)

    def write(self, descriptor, data):
        return os.write(self.table[descriptor], data)

    def open(self, path, flags):
        descriptor = os.open(path, flags)
        self.opened.append(descriptor)
        return descriptor

    def close(self, descriptor):
        os.close(descriptor)
        self.opened.remove(descriptor)

    def open_file(self, file, *arguments, **words):
        if file == "/proc/self/statm":
            if self.asked.count("no statm"):
                raise FileNotFoundError(file)
            return io.StringIO(STATM)
        return builtins.open(self.table[file], *arguments, **words)


@pytest.fixture
def system(monkeypatch):
    system = System()
    monkeypatch.setattr(one_call, "os", system)
    monkeypatch.setattr(one_call, "open", system.open_file, raising=False)
    monkeypatch.setattr(one_call, "signal", SimpleNamespace(alarm=system.asked.append))
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    yield system
    for descriptor in system.opened:
        os.close(descriptor)


@pytest.fixture
def memory(monkeypatch):
    """`memory.limits` are those of data, now: the one that holds, and the highest possible."""
    memory = SimpleNamespace(limits=None)

    def setrlimit(kind, limits):
        assert kind == "data"
        memory.limits = limits

    monkeypatch.setattr(
        one_call,
        "resource",
        SimpleNamespace(RLIMIT_DATA="data", getpagesize=lambda: PAGE, setrlimit=setrlimit),
    )
    monkeypatch.setattr(one_call, "_limits", one_call._limits[:0])
    return memory


@pytest.fixture
def run(system, memory):
    """Makes a call of `function` in this process. `theirs` is the other end of its pipe."""
    ours, theirs = Pipe()
    results = SimpleNamespace(send=ours.send, send_bytes=ours.send_bytes)

    def receive():
        assert ours.poll()  # no fault may hang a test
        return ours.recv()

    results.recv = receive
    output, write_output = Pipe(duplex=False)
    os.set_blocking(output.fileno(), False)

    def make(function, *, reports=False, waits=False, data=None):
        FUNCTIONS["now"] = function
        data = pickle.dumps((call_it, ())) if data is None else data
        before = os.dup(write_output.fileno())
        writes = SimpleNamespace(
            fileno=lambda: before, close=lambda: system.asked.append("its end is closed")
        )
        try:
            with pytest.raises(Left) as left:
                one_call._make(Call(data, 2.0, reports, waits), results, writes)
        finally:
            os.close(before)
        assert left.value.args == (0,)
        messages = []
        while theirs.poll():
            messages.append(theirs.recv())
        assert messages.pop(0) == ("started", None)
        return messages

    def printed() -> str:
        try:
            return os.read(output.fileno(), 1 << 16).decode()
        except BlockingIOError:
            return ""

    yield SimpleNamespace(make=make, printed=printed, theirs=theirs)
    for end in (ours, theirs, output, write_output):
        end.close()


FUNCTIONS = {}


def call_it(*arguments, **words):
    """Travels by its name, unlike a function within a test."""
    return FUNCTIONS["now"](*arguments, **words)


def test_a_call_returns(run, system, memory):
    assert run.make(lambda: 5) == [("returned", 5)]
    assert "its end is closed" in system.asked
    assert 25 in system.asked  # seconds until it ends by itself
    assert memory.limits == (60 * PAGE + 4 * GB, 60 * PAGE + 5 * GB)


def test_a_call_has_its_arguments(run):
    data = pickle.dumps((call_it, (7, 2)))
    assert run.make(divmod, data=data) == [("returned", (3, 1))]


@pytest.mark.parametrize("code, words", [(3, "exit(3)"), ("x" * 99, f"exit('{'x' * 79})")])
def test_a_call_exits(run, code, words):
    assert run.make(lambda: sys.exit(code)) == [("exited", words)]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_call_raises(run, kind):
    def fail():
        raise kind("no")

    ((ending, error),) = run.make(fail)
    assert ending == "raised" and type(error) is kind and error.args == ("no",)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_a_call_prints_is_seen_line_by_line(run, name):
    seen = []

    def answer():
        print("a line", file=getattr(sys, name))
        seen.append(run.printed())

    run.make(answer)
    assert seen == ["a line\n"]


def test_both_kinds_of_output_go_to_one_place(run, system):
    def answer():
        for descriptor, word in ((1, b"one "), (2, b"two ")):
            system.write(descriptor, word)
        sys.stdout.write("three ")
        sys.stdout.flush()
        sys.stderr.write("four")
        sys.stderr.flush()
        return [stream.fileno() for stream in (sys.stdout, sys.stderr)], system.table

    ((_, (_, table)),) = run.make(answer)
    assert run.printed() == "one two three four" and {*table} == {1, 2}


@pytest.mark.parametrize("name, descriptor", [("stdout", 1), ("stderr", 2)])
def test_a_call_that_closes_its_output_can_still_write_there(run, system, name, descriptor):
    def answer():
        getattr(sys, name).close()
        system.write(descriptor, b"a line")

    assert run.make(answer) == [("returned", None)]
    assert run.printed() == "a line"


@pytest.mark.parametrize("name, descriptor", [("stdout", 1), ("stderr", 2)])
def test_each_stream_has_its_own_descriptor(run, system, name, descriptor):
    """So that a call which sends one of them elsewhere leaves the other."""
    opened = {}
    open_file = system.open_file

    def note(file, *arguments, **words):
        stream = open_file(file, *arguments, **words)
        opened[stream] = file
        return stream

    one_call.open = note
    numbers = []
    run.make(lambda: numbers.append(opened[getattr(sys, name)]))
    assert numbers == [descriptor]


def test_what_is_half_a_line_is_seen_at_the_end(run):
    run.make(lambda: print("half", end=""))
    assert run.printed() == "half"


def test_output_that_cannot_be_written_is_no_trouble(run):
    def answer():
        sys.stdout = None
        return 5

    assert run.make(answer) == [("returned", 5)]


@pytest.mark.parametrize(
    "words, call_waits, sent",
    [({}, True, True), ({"waits": False}, True, False), ({}, False, False)],
    ids=["waits", "needs no answer", "nobody answers"],
)
def test_a_report_waits_if_it_should_and_somebody_answers(
    run, system, words, call_waits, sent
):
    if sent:
        run.theirs.send(7.0)

    def answer(report):
        report("half", **words)
        return list(system.asked)

    (kind, (value, waits)), (ending, asked) = run.make(answer, reports=True, waits=call_waits)
    assert (kind, value, waits, ending) == ("report", "half", sent, "returned")
    assert (75 in asked) is sent  # 10 times 7 seconds, and 5


def test_a_report_may_leave_the_limit(run, system):
    run.theirs.send(None)
    run.make(lambda report: report("half"), reports=True, waits=True)
    assert [asked for asked in system.asked if isinstance(asked, int)] == [25]


@pytest.mark.parametrize("limit, seconds", [(0.25, 8), (1.0, 15), (2.01, 26), (100.0, 1_005)])
def test_a_process_ends_by_itself_5_seconds_after_10_times_its_limit(system, limit, seconds):
    one_call._end_by_itself(limit)
    assert system.asked == [seconds]


@pytest.fixture
def split(monkeypatch, system):
    """`split.caller` is what the fork returns: a number for the parent, 0 for the child."""
    split = SimpleNamespace(caller=0)

    def see_out(caller):
        system.asked.append(f"see {caller} out")
        raise Left("as the caller")

    monkeypatch.setattr(
        process_family, "adopt_orphans", lambda: system.asked.append("its orphans")
    )
    monkeypatch.setattr(
        process_family, "split", lambda: system.asked.append("a fork") or split.caller
    )
    monkeypatch.setattr(process_family, "see_out", see_out)
    monkeypatch.setattr(one_call, "_make", lambda *all: system.asked.append(all))
    return split


class End:
    def __init__(self, *messages):
        self.messages, self.closed = list(messages), False

    def recv(self):
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    def close(self):
        self.closed = True


def test_one_process_makes_the_call(split, system):
    results, output = End("the call"), End()
    one_call.serve(results, output)
    assert system.asked == [
        "a session",
        "its orphans",
        "a fork",
        ("the call", results, output),
    ]
    assert not results.closed and not output.closed


def test_the_other_process_cleans_up(split, system):
    split.caller = 77
    results, output = End("not for it"), End()
    with pytest.raises(Left, match="as the caller"):
        one_call.serve(results, output)
    assert results.closed and output.closed and results.messages == ["not for it"]
    assert system.asked[-1] == "see 77 out"


@pytest.mark.parametrize("error", [EOFError(), OSError()])
def test_a_process_for_which_nobody_has_a_call_ends(split, system, error):
    with pytest.raises(Left) as left:
        one_call.serve(End(error), End())
    assert left.value.args == (0,)


def test_where_there_is_no_statm_memory_has_no_limit(system, memory):
    system.asked.append("no statm")
    one_call._limit_memory()
    one_call.use_reserve(True)
    assert memory.limits is None


WITHOUT, WITH = (
    (60 * PAGE + 4 * GB, 60 * PAGE + 5 * GB),
    (60 * PAGE + 5 * GB, 60 * PAGE + 5 * GB),
)


def test_the_reserve_is_for_what_comes_after(system, memory):
    one_call._limit_memory()
    one_call.use_reserve(True)
    seen = []

    def answer(*arguments):
        seen.append(memory.limits)
        return arguments

    assert one_call.keeping_reserve(answer, 1, 2, otherwise=None) == (1, 2)
    assert seen == [WITHOUT] and memory.limits == WITH


def test_what_finds_too_little_memory_has_another_result(system, memory):
    one_call._limit_memory()
    error, seen = MemoryError(), []

    def answer():
        raise error

    def otherwise(error):
        seen.append(memory.limits)
        one_call.use_reserve(False)
        return error

    assert one_call.keeping_reserve(answer, otherwise=otherwise) is error
    assert seen == [WITH] and memory.limits == WITH


def test_after_another_error_the_reserve_is_there_too(system, memory):
    one_call._limit_memory()
    with pytest.raises(ZeroDivisionError):
        one_call.keeping_reserve(lambda: 1 / 0, otherwise=None)
    assert memory.limits == WITH


class UnreadableError(Exception):
    def __init__(self, one, two):
        super().__init__("odd")


class Silent(Exception):
    def __str__(self):
        raise SystemExit


def unpicklable(kind):
    error = kind("no")
    error.lock = threading.Lock()
    return error


@pytest.mark.parametrize(
    "value, words",
    [
        (UnreadableError(1, 2), "UnreadableError: odd"),
        (unpicklable(ValueError), "ValueError: no"),
        (unpicklable(Silent), "Silent: (its text cannot be shown)"),
    ],
)
def test_an_error_that_cannot_travel_goes_in_words(value, words):
    ending, error = pickle.loads(one_call._pickle_message(("raised", value)))
    assert (ending, type(error), str(error)) == ("raised", RuntimeError, words)


def test_a_result_that_cannot_travel_is_an_error():
    ending, error = pickle.loads(one_call._pickle_message(("returned", UnreadableError(1, 2))))
    assert (ending, type(error)) == ("raised", TypeError)
    assert str(error) == "The result cannot be sent back: it is of type UnreadableError"


@pytest.mark.parametrize(
    "error, words",
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError(": no"), "ValueError: : no"),
        (Silent(), "Silent: (its text cannot be shown)"),
    ],
)
def test_an_error_in_words(error, words):
    assert one_call.describe_error(error) == words


def test_what_c_printed_is_written_too(tmp_path):
    library, file = ctypes.CDLL(None), tmp_path / "printed"
    library.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(library.fopen(bytes(file), b"w"))
    library.fputs(b"from C", stream)
    before = file.read_text()
    one_call._flush()
    assert (before, file.read_text()) == ("", "from C")
    library.fclose(stream)


@pytest.fixture
def printing(run):
    """Makes a call of this function, and returns all that was written."""

    def write(function):
        run.make(function)
        return run.printed()

    return write


def test_a_mark_comes_after_what_is_to_be_forgotten(printing):
    def answer():
        print("before", end="")
        one_call.keep_printed(begins=True)
        print("after", end="")

    assert printing(answer) == "before\x1eafter"


def test_the_mark_goes_to_stdout(printing, system):
    def answer():
        system.table[2] = os.open(os.devnull, os.O_WRONLY)
        system.opened.append(system.table[2])
        one_call.keep_printed(begins=True)

    assert printing(answer) == "\x1e"


def test_nothing_is_kept_after_the_end(printing, system):
    left = []

    def answer():
        print("before", end="")
        one_call.keep_printed(begins=False)
        left.extend(system.opened)
        left.append({*system.table})
        left.append(system.table[1] == system.table[2])

    assert printing(answer) == "before"
    assert left == [{1, 2}, True]  # no other descriptor is open
