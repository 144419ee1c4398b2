"""The processes beside a Dask worker that grade. They are stand-ins, and so is the clock."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lessons_grading import judge_process, remote

ABOUT = {"course": "course", "mistakes": "mistakes", "problem": ""}


class Pipe:
    """Our end. A process answers while we wait for it."""

    def __init__(self, machine: "Machine"):
        self.machine, self.said, self.process = machine, [], None
        descriptor = 100 + len(machine.pipes)
        self.theirs = SimpleNamespace(fileno=lambda: descriptor, closed=False)
        self.theirs.close = lambda: setattr(self.theirs, "closed", True)
        machine.pipes.append(self)

    def is_at_its_end(self) -> bool:
        return self.process.code is not None and self.theirs.closed

    def poll(self, seconds: float) -> bool:
        self.process.goes_on()
        if not self.said and not self.is_at_its_end():
            self.machine.now += seconds
            return False
        return True

    def recv_bytes(self, limit: int) -> bytes:
        if not self.said:
            raise EOFError
        data = self.said.pop(0)
        if len(data) > limit:
            raise OSError("bad message length")
        return data

    def send_bytes(self, data: bytes):
        if self.is_at_its_end():
            raise BrokenPipeError
        self.process.orders.append(json.loads(data))


class Machine:
    """begins: what the next process does at its start: "says", "hangs" or "dies"."""

    def __init__(self):
        self.now, self.begins, self.pipes, self.processes = 1000.0, "says", [], []

    def monotonic(self) -> float:
        return self.now

    def pipe(self):
        pipe = Pipe(self)
        return pipe, pipe.theirs

    def start(self, command, **how) -> "Process":
        self.processes.append(Process(self, command, how))
        return self.processes[-1]


class Process:
    """needs: seconds from SIGTERM until its end.

    code: is known once somebody has waited for its end.
    """

    needs, signal = 0.0, -15

    def __init__(self, machine: Machine, command: list, how: dict):
        self.machine, self.command, self.how = machine, command, how
        (descriptor,) = how["pass_fds"]
        assert command[-1] == str(descriptor)
        (self.pipe,) = (each for each in machine.pipes if each.theirs.fileno() == descriptor)
        self.pipe.process = self
        self.begins, self.code, self.orders, self.is_told = machine.begins, None, [], False
        self.stdin = SimpleNamespace(closed=how["stdin"] != subprocess.PIPE)
        self.stdin.close = lambda: setattr(self.stdin, "closed", True)

    def says(self, message: dict | bytes):
        is_encoded = isinstance(message, bytes)
        self.pipe.said.append(message if is_encoded else json.dumps(message).encode())

    def goes_on(self):
        match self.begins:
            case "says":
                self.says(ABOUT)
            case "dies":
                self.code = 5
        self.begins = ""
        for work in self.orders:
            match work["does"]:
                case "go":
                    self.says(b"{}"), self.says(b"{}"), self.says({"grade": work})
                case "die":
                    self.code = -9
                case "call":
                    work["does"] = "hang"
                    self.machine.call()
                case int(size):
                    self.says(b" " * size)
        self.orders = [work for work in self.orders if work["does"] == "hang"]

    def poll(self):
        return self.code

    def wait(self, timeout: float | None = None):
        if self.code is None:
            left = self.needs if self.is_told else float("inf")
            seconds = left if timeout is None else min(left, timeout)
            assert seconds < float("inf"), "it waits for ever"
            self.machine.now += seconds
            if seconds < left:
                raise subprocess.TimeoutExpired("judge", timeout)
            self.code = self.signal
        return self.code

    def terminate(self):
        self.is_told = True

    def kill(self):
        self.needs, self.signal = 0.0, -9


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    known = SimpleNamespace(
        Popen=made.start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
    monkeypatch.setattr(remote, "subprocess", known)
    monkeypatch.setattr(remote, "time", made)
    monkeypatch.setattr(remote, "Pipe", made.pipe)
    others, remote._idle[:] = remote._idle[:], []  # those of other tests are real
    assert not remote._busy
    yield made
    remote._idle[:] = others
    assert not remote._busy


def graded(does, command="ours", patience=50.0, **other) -> dict | bytes:
    work = {"does": does, "seed": 3}
    about = {"instance": remote.INSTANCE, "course": "course", "mistakes": "mistakes"}
    order = about | {"command": command, "patience": patience, "work": work} | other
    reply = remote.grade(json.dumps(order))
    return json.loads(reply) if reply.strip() else reply


GRADE = {"grade": {"does": "go", "seed": 3}}


def test_a_process_is_started_by_itself_with_the_course_of_the_worker(machine, monkeypatch):
    monkeypatch.setattr(sys, "path", ["/of the course", "", "/further"])
    monkeypatch.setenv("LESSONS_MISTAKES", "/mistakes")
    remote.look()
    (process,) = machine.processes
    assert process.command[:-2] == [sys.executable, "-P", "-c"]
    environment = process.how["env"]
    assert environment["PYTHONPATH"] == os.pathsep.join(["/of the course", "/further"])
    assert environment["LESSONS_MISTAKES"] == "/mistakes"
    assert process.how["start_new_session"] is True  # a signal for the worker is none for it
    served = []
    monkeypatch.setattr(judge_process, "serve", lambda: served.append(1))
    exec(process.command[-2], {})
    assert served == [1]


def test_a_look_says_what_is_there_and_leaves_the_process_for_work(machine):
    for _ in range(2):
        assert json.loads(remote.look()) == {"instance": remote.INSTANCE, "about": ABOUT}
    assert graded("go") == GRADE and graded("go") == GRADE
    (process,) = machine.processes
    assert process.code is None and process.pipe.theirs.closed


def test_each_worker_has_an_instance_of_its_own():
    assert len(remote.INSTANCE) == 32 and int(remote.INSTANCE, 16)


BEGINS = {  # what is told, and the seconds that it takes
    "dies": ("the process that graded it ended, exit code 5", 0),
    "hangs": ("it did not come to an end", 600),
}


@pytest.mark.parametrize("begins, told", BEGINS.items(), ids=BEGINS)
def test_a_process_that_does_not_begin_is_told(machine, begins, told):
    machine.begins = begins
    reason, seconds = told
    assert json.loads(remote.look()) == {"instance": remote.INSTANCE, "failed": reason}
    assert machine.now == 1000 + seconds
    assert graded("go") == {"lost": reason}
    assert not remote._idle and all(each.code is not None for each in machine.processes)


def test_an_order_for_another_worker_is_given_back(machine):
    for part, reply in {
        "instance": {"restarted": "its worker was started again"},
        "course": {"other": "its course changed meanwhile"},
        "mistakes": {"other": "its mistakes changed meanwhile"},
    }.items():
        assert graded("go", **{part: "another"}) == reply
    assert graded("go") == GRADE and len(machine.processes) == 1


LOSSES = {  # what is told, and the seconds that it takes
    "die": ("the process that graded it ended, exit code -9", 0),
    "hang": ("it did not come to an end", 50),
}


@pytest.mark.parametrize("does, told", LOSSES.items(), ids=LOSSES)
def test_a_process_that_is_lost_is_told_and_another_goes_on(machine, does, told):
    reason, seconds = told
    assert graded(does) == {"lost": reason} and machine.now == 1000 + seconds
    assert graded("go") == GRADE
    first, second = machine.processes
    assert first.code is not None and second.code is None


@pytest.mark.parametrize("size, is_read", [(4 << 20, True), ((4 << 20) + 1, False)])
def test_a_reply_has_4_mb_at_most(machine, size, is_read):
    reply = graded(size)
    if is_read:
        assert reply == " " * size
    else:  # its end was waited for, and then it was ended
        assert reply == {"lost": "the process that graded it ended, exit code None"}
        assert machine.now == 1005 and machine.processes[0].code == -15


@pytest.mark.parametrize("has_waited", [False, True])
def test_only_what_the_command_has_at_work_is_stopped(machine, has_waited):
    def call():
        (process,) = machine.processes
        remote.stop("theirs")
        assert process.code is None
        remote.stop("ours")

    machine.call = call
    if has_waited:
        remote.look()
    ended = "the process that graded it ended, exit code -15"
    assert graded("call", command="ours") == {"lost": ended}
    assert machine.now == 1000 and not remote._idle


def test_while_one_is_at_work_another_is_started(machine):
    replies = []
    machine.call = lambda: replies.append(graded("go"))
    assert graded("call") == {"lost": "it did not come to an end"}
    assert replies == [GRADE] and len(machine.processes) == 2


@pytest.mark.parametrize("seconds, is_fresh", [(59.9, True), (60.0, False)])
def test_a_process_that_waited_for_a_minute_gets_no_further_work(machine, seconds, is_fresh):
    machine.now += 10_000
    remote.look()
    machine.now += seconds
    assert graded("go") == GRADE
    assert len(machine.processes) == (1 if is_fresh else 2)
    assert (machine.processes[0].code is None) == is_fresh
    assert len(remote._idle) == 1
    machine.now += seconds  # since its work, not since its start
    assert graded("go") == GRADE
    assert len(machine.processes) == (1 if is_fresh else 3)


def test_a_process_that_ended_while_it_waited_gets_no_work_either(machine):
    remote.look()
    machine.processes[0].code = -9
    assert graded("go") == GRADE and len(machine.processes) == 2


def test_a_process_ends_itself_only_when_it_gets_no_further_work():
    assert remote.IDLE_LIMIT > remote.STILL_FRESH


ENDS = {  # the seconds that it needs, those that it gets, and its exit code
    "at once": (0.0, 0.0, -15),
    "after a while": (9.0, 9.0, -15),
    "deaf": (float("inf"), 10.0, -9),
}


@pytest.mark.parametrize("needs, gets, code", ENDS.values(), ids=ENDS)
def test_a_process_has_time_to_tidy_up_and_no_more(machine, monkeypatch, needs, gets, code):
    monkeypatch.setattr(Process, "needs", needs)
    judge = remote._Judge()
    judge.end()
    (process,) = machine.processes
    assert process.stdin.closed and process.code == code and machine.now == 1000 + gets
