"""What becomes of a run, told from what comes out of its process. That process is a stand-in,
and so is the clock.
"""

import functools
import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import wait
from types import SimpleNamespace

import pytest

from lessons_processes import isolation
from lessons_processes.isolation import Outcome
from lessons_processes.own_time import Stopwatch

MOST_LOOKS = 10_000  # a run that is looked at more often would never end


class Process:
    """Its exit code is known once somebody has waited for it."""

    pid = 77

    def __init__(self):
        self.sentinel, self._end = os.pipe()
        self.exitcode, self._code = None, None

    def exit(self, code):
        self._code = code
        os.close(self._end)
        self._end = None

    def join(self, limit):
        assert limit == 180
        self.exitcode = self._code

    def close(self):
        os.close(self.sentinel)
        if self._end is not None:
            os.close(self._end)


class Results:
    """This end of the pipe. Waiting at it moves the clock."""

    def __init__(self, connection, clock):
        self._connection, self._clock = connection, clock
        self.fileno, self.send = connection.fileno, connection.send
        self.close = connection.close

    def recv(self):
        assert self._connection.poll(0)  # no fault may hang a test
        return self._connection.recv()

    def poll(self, seconds):
        is_there = self._connection.poll(0)
        self._clock.now += 0 if is_there else seconds
        return is_there


class Child:
    """A process that has a call, and the other ends of its pipes."""

    def __init__(self, clock):
        results, self.theirs = Pipe()
        self.results, self.process = Results(results, clock), Process()
        self.output, self.printing = Pipe(duplex=False)
        os.set_blocking(self.output.fileno(), False)  # so that no read hangs
        self.between_looks = []  # what happens after a look, and before the next

    def sends(self, *message):
        self.theirs.send(message)

    def prints(self, data: bytes):
        os.write(self.printing.fileno(), data)

    def close(self):
        for each in (self.results, self.theirs, self.process, self.output, self.printing):
            each.close()


@pytest.fixture
def clock(monkeypatch):
    """Only waiting moves it. Nothing can be seen of a run, so only this clock counts."""
    clock = SimpleNamespace(now=1024.0, looks=0)
    monkeypatch.setattr(isolation, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(
        isolation, "Stopwatch", functools.partial(Stopwatch, clock=lambda: clock.now)
    )
    monkeypatch.setattr(isolation, "observe_session", lambda session: None)
    return clock


@pytest.fixture
def child(monkeypatch, clock):
    child = Child(clock)

    def look(sources, seconds):
        clock.looks += 1
        assert clock.looks < MOST_LOOKS
        ready = wait(sources, 0)
        clock.now += 0 if ready else seconds
        if child.between_looks:
            child.between_looks.pop(0)()
        return ready

    monkeypatch.setattr(isolation, "wait", look)
    yield child
    child.close()


def follow(child, time_limit=0.5, on_report=None, output_limit=float("inf")) -> Outcome:
    return isolation._follow(child, time_limit, on_report, output_limit)


ENDS = {
    ("returned", 5): Outcome("returned", 5, None, "", "some words", "half"),
    ("raised", "an error"): Outcome("raised", None, "an error", "", "some words", "half"),
    ("exited", "exit(3)"): Outcome("exited", None, None, "exit(3)", "some words", "half"),
}


@pytest.mark.parametrize("message, outcome", ENDS.items())
def test_what_a_run_sends_is_its_outcome(clock, child, message, outcome):
    child.sends("started", None)
    child.prints(b"some words")
    child.sends("report", ("half", False))
    child.sends(*message)
    assert follow(child) == outcome
    assert clock.now == 1024  # nobody has waited for it


def test_an_outcome_has_only_what_it_is_given():
    assert vars(Outcome("returned")) == {
        "ending": "returned",
        "value": None,
        "error": None,
        "detail": "",
        "printed": "",
        "last_report": None,
    }


@pytest.mark.parametrize("ends", ["with a result", "alone"])
def test_words_that_come_with_the_end_are_kept(child, ends):
    """They come after the look that sees the end."""
    child.sends("started", None)
    end = {
        "with a result": lambda: child.sends("returned", 5),
        "alone": lambda: child.process.exit(3),
    }[ends]
    child.between_looks = [end, lambda: child.prints(b"last words")]
    outcome = follow(child)
    assert (outcome.printed, outcome.last_report) == ("last words", None)


@pytest.mark.parametrize(
    "code, ending, detail",
    [
        (0, "exited", "exit code 0"),
        (1, "exited", "exit code 1"),
        (None, "exited", "exit code None"),
        (-signal.SIGSEGV, "crashed", signal.strsignal(signal.SIGSEGV)),
        (-signal.SIGHUP, "crashed", signal.strsignal(signal.SIGHUP)),
        (-250, "crashed", "signal 250"),
    ],
)
def test_a_process_that_ends_without_a_result_says_how(
    monkeypatch, clock, child, code, ending, detail
):
    names = {number: signal.strsignal(number) for number in (signal.SIGSEGV, signal.SIGHUP)}
    monkeypatch.setattr(signal, "strsignal", lambda number: names.get(number))
    child.sends("started", None)
    child.sends("report", ("half", False))
    child.prints(b"some words")
    child.theirs.close()
    child.process.exit(code)
    assert follow(child) == Outcome(
        ending, detail=detail, printed="some words", last_report="half"
    )
    assert clock.now == 1024


def test_an_end_before_the_call_began_is_a_process_that_did_not_start(child):
    child.process.exit(1)
    with pytest.raises(ConnectionError, match="before the call began"):
        follow(child)


def test_a_result_that_cannot_be_read_ends_the_run(child):
    child.sends("started", None)
    child.sends("report", ("half", False))
    child.theirs.send_bytes(b"rubbish")
    assert follow(child) == Outcome(
        "exited", detail="unreadable result, UnpicklingError", last_report="half"
    )


@pytest.mark.parametrize("length, ending", [(10, "timed out"), (11, "flooded")])
def test_a_run_may_print_up_to_its_limit(child, length, ending):
    child.sends("started", None)
    child.sends("report", ("half", False))
    child.between_looks = [lambda: None, lambda: None, lambda: child.prints(b"x" * length)]
    outcome = follow(child, output_limit=10)
    assert outcome == Outcome(
        ending,
        detail={"flooded": "10 bytes", "timed out": "0.5 s"}[ending],
        printed="x" * length,
        last_report="half",
    )


def test_a_run_is_looked_at_ten_times_a_second(clock, child):
    child.sends("started", None)
    assert follow(child).detail == "0.5 s"
    assert clock.now == pytest.approx(1024.6) and clock.looks <= 9


def test_a_run_that_closes_what_it_prints_to_goes_on(clock, child):
    child.sends("started", None)
    child.printing.close()
    assert follow(child).ending == "timed out" and clock.looks <= 10


def test_a_run_that_does_not_begin_has_three_minutes(clock, child):
    outcome = follow(child)
    assert (outcome.ending, outcome.detail) == ("timed out", "180 s")
    assert clock.now == pytest.approx(1204, abs=0.2)


def test_a_report_is_answered_with_the_new_limit(child):
    child.sends("started", None)
    child.sends("report", ("half", True))
    received = []

    def receive(value) -> float:
        received.append(value)
        return 0.25

    outcome = follow(child, on_report=receive)
    assert (outcome.detail, outcome.last_report, received) == ("0.25 s", "half", ["half"])
    assert child.theirs.poll() and child.theirs.recv() == 0.25


def test_a_report_without_a_new_limit_is_answered_too(child):
    child.sends("started", None)
    child.sends("report", ("half", True))
    outcome = follow(child, on_report=lambda value: None)
    assert (outcome.ending, outcome.detail) == ("timed out", "0.5 s")
    assert child.theirs.poll() and child.theirs.recv() is None


@pytest.mark.parametrize("on_report", [None, lambda value: 0.25], ids=["nobody", "somebody"])
def test_a_report_that_does_not_wait_gets_no_answer_and_changes_no_limit(child, on_report):
    child.sends("started", None)
    child.sends("report", ("half", False))
    outcome = follow(child, on_report=on_report)
    assert (outcome.ending, outcome.detail, outcome.last_report) == (
        "timed out",
        "0.5 s",
        "half",
    )
    assert not child.theirs.poll()


def test_what_the_receiver_takes_is_not_the_runs_time(clock, child):
    child.sends("started", None)
    child.sends("report", ("half", True))

    def receive(value):
        clock.now += 60
        child.sends("returned", 5)

    assert follow(child, on_report=receive).value == 5


def over_after(time_of_run, clock) -> float:
    """How many seconds the run may take from now on. Looks every quarter of a second."""
    begun = clock.now
    while not time_of_run.is_over():
        assert clock.now - begun < 1_000
        clock.now += 0.25
    return clock.now - begun - 0.25


def test_a_start_may_take_three_minutes(clock):
    time_of_run = isolation._TimeOfRun(77)
    assert not time_of_run.has_begun() and time_of_run.limit == 180
    assert over_after(time_of_run, clock) == 180


def test_a_run_has_its_limit_in_own_time(clock):
    time_of_run = isolation._TimeOfRun(77)
    time_of_run.begin(2.0)
    assert time_of_run.has_begun() and time_of_run.limit == 2
    assert over_after(time_of_run, clock) == 2


def test_a_run_that_waits_for_a_processor_has_ten_times_as_long(monkeypatch, clock):
    observed = set()
    monkeypatch.setattr(
        isolation, "observe_session", lambda session: observed.add(session) or (0.0, True)
    )
    time_of_run = isolation._TimeOfRun(77)
    time_of_run.begin(2.0)
    assert over_after(time_of_run, clock) == 20 and observed == {77}


@pytest.mark.parametrize("seen, seconds", [(None, 2), ((0.0, True), 20)])
def test_a_pause_leaves_out_its_time(monkeypatch, clock, seen, seconds):
    monkeypatch.setattr(isolation, "observe_session", lambda session: seen)
    time_of_run = isolation._TimeOfRun(77)
    time_of_run.begin(2.0)
    with time_of_run.paused():
        clock.now += 64
    assert over_after(time_of_run, clock) == seconds


@pytest.fixture
def printed(tmp_path):
    """Reads these chunks, one at a time."""

    def read(*chunks: bytes):
        printed = isolation._Printed()
        for chunk in chunks:
            (tmp_path / "chunk").write_bytes(chunk)
            with open(tmp_path / "chunk", "rb") as file:
                assert printed.read(file) is bool(chunk)
        return printed

    return read


CUT = "\n… (cut: too long)"
TEXTS = {
    "nothing": ([], ""),
    "in parts": ([b"one ", b"two"], "one two"),
    "all that is kept": ([b"x" * 1_999, b"y"], "x" * 1_999 + "y"),
    "one more": ([b"x" * 1_999, b"yz"], "x" * 1_999 + "y" + CUT),
    "and the end": ([b"x" * 2_001, b""], "x" * 2_000 + CUT),
    "half a letter": (["…".encode() * 700], "…" * 666 + "\N{REPLACEMENT CHARACTER}" + CUT),
    "forgotten": ([b"one ", b"two\x1ethree", b" four"], "three four"),
    "forgotten twice": ([b"one\x1etwo\x1ethree"], "three"),
    "too much forgotten": ([b"x" * 3_000, b"\x1eshort"], "short"),
    "too much remembered": ([b"\x1e" + b"x" * 2_001], "x" * 2_000 + CUT),
}


@pytest.mark.parametrize("chunks, text", TEXTS.values(), ids=TEXTS)
def test_the_first_2000_characters_after_the_mark_are_kept(printed, chunks, text):
    result = printed(*chunks)
    assert (result.text(), result.length) == (text, sum(map(len, chunks)))


def test_a_look_reads_64_kilobytes(printed):
    assert printed(b"x" * 200_000).length == 65_536


@pytest.mark.parametrize("more, length", [([], 200_000), ([1, 50_000], 200_001)])
def test_what_is_left_is_read_up_to_a_hundred_times_as_much_as_is_kept(
    monkeypatch, more, length
):
    output, printing = Pipe(duplex=False)
    os.set_blocking(output.fileno(), False)
    chunks = [*[50_000] * 4, *more]

    def look(sources, seconds):
        assert seconds == 0
        if chunks:
            os.write(printing.fileno(), b"x" * chunks.pop(0))
        return wait(sources, 0)

    monkeypatch.setattr(isolation, "wait", look)
    printed = isolation._Printed()
    with output, printing:
        printed.drain(output)
    assert printed.length == length
