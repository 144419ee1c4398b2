"""The processes that grade side by side. They are stand-ins, and so is the clock."""

import json
import os
import signal
import tempfile
from collections import Counter
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from graded import ALL_RIGHT
from lessons_grading import classroom
from lessons_grading.classroom import grade_all, twice_if_needed
from lessons_grading.grades import SubmissionGrade
from lessons_grading.submissions import Submission


def graded(student: str, *events: str, is_final: bool = True) -> SubmissionGrade:
    return SubmissionGrade(
        student, f"{student}.ipynb", "1", "00", (ALL_RIGHT,), events, 0.1, is_final
    )


def named(*students: str) -> list[Submission]:
    return [Submission(student, Path(f"{student}.ipynb")) for student in students]


class Machine:
    """Runs the processes while the command waits for them.

    behaviour: student to what becomes of a grading, or of each attempt: "right", "not final",
        "raises", "dies", "hangs", "steps" (one a minute, three before the grade), or "closes"
        (its pipe, but does not end).
    began: for each grading, its student and how many others went on.
    waited: the seconds of each wait.
    """

    def __init__(self, **behaviour):
        self.now, self.behaviour = 1000.0, behaviour
        self.processes, self.began, self.waited = [], [], []

    def monotonic(self) -> float:
        return self.now

    def wait(self, pipes, seconds: float) -> list:
        self.waited.append(seconds)
        assert len(self.waited) < 200, "it waits for ever"
        for process in self.processes:
            process.goes_on()
        ready = connection.wait(pipes, 0)
        if not ready:
            steps = any(process.doing == "steps" for process in self.processes)
            self.now += min(seconds, 60.0) if steps else seconds
        return ready

    def process(self, target, args) -> "Process":
        self.processes.append(Process(self, target, args))
        return self.processes[-1]

    def begin(self, student: str) -> str:
        attempts = self.behaviour.get(student, "right")
        tried = [name for name, _ in self.began].count(student)
        beside = sum(bool(process.doing) for process in self.processes)
        self.began.append((student, beside))
        return attempts if isinstance(attempts, str) else attempts[tried]


class Process:
    """A worker. Its `exitcode` is known once somebody has waited for its end.

    needs: seconds from SIGTERM to its end.
    ended_by: what ended it.
    heard: whether its pipe was closed before it was told to end.
    """

    needs = 0.0

    def __init__(self, machine: Machine, target, args):
        self.machine, self.target, self.args = machine, target, args
        self.doing, self.steps, self.is_told, self.heard = "", 0, False, False
        self.code, self.exitcode, self.ended_by = None, None, ""

    def start(self):
        theirs, self.grade, self.scratch = self.args
        assert callable(self.target)
        self.pipe = connection.Connection(os.dup(theirs.fileno()))

    def goes_on(self):
        """Does what it can do now."""
        if self.pipe.closed:
            return
        if not self.doing and self.pipe.poll(0):
            path, self.student = self.pipe.recv()
            assert path == Path(f"{self.student}.ipynb")
            self.doing = self.machine.begin(self.student)
        match self.doing:
            case "right":
                self.says(grade=graded(self.student).to_json())
            case "not final":
                self.says(grade=graded(self.student, "busy", is_final=False).to_json())
            case "raises":
                self.says(failed="RuntimeError: a fault of the grader")
            case "dies":
                self.ends(-9, "itself")
            case "closes":
                self.pipe.close()
            case "steps":
                self.steps += 1
                if self.steps == 8:
                    self.says(grade=graded(self.student).to_json())
                elif self.steps % 2 == 0:
                    self.pipe.send_bytes(b"{}")

    def says(self, **message):
        self.pipe.send_bytes(json.dumps(message).encode())
        self.doing, self.steps = "", 0

    def ends(self, code: int, by: str):
        if self.code is None:
            self.code, self.ended_by, self.doing = code, by, ""
            self.pipe.close()

    def terminate(self):
        self.is_told = True
        self.heard = self.pipe.closed or self.pipe.poll(0)

    def join(self, timeout: float | None = None):
        if self.code is None:
            left = self.needs if self.is_told else float("inf")
            seconds = left if timeout is None else min(left, timeout)
            assert seconds < float("inf"), "it waits for ever"
            self.machine.now += seconds
            if seconds == left:
                self.ends(1, "SIGTERM")
        self.exitcode = self.code

    def kill(self):
        self.ends(-9, "SIGKILL")


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(classroom._context, "Process", made.process)
    monkeypatch.setattr(classroom, "time", made)
    monkeypatch.setattr(classroom, "wait", made.wait)
    return made


def outcomes(submissions, workers=3, patience=1000.0) -> dict[str, SubmissionGrade]:
    """The grades in the order in which they came."""
    judged = [*grade_all(submissions, "the grader", workers, patience)]
    assert len(dict(judged)) == len(judged)
    return {submission.student: grade for submission, grade in judged}


def test_several_are_graded_at_a_time_and_each_process_grades_one_after_another(machine):
    grades = outcomes(named(*"abcdefg"))
    assert grades == {student: graded(student) for student in "abcdefg"}
    assert [student for student, _ in machine.began] == [*"abcdefg"]
    assert len(machine.processes) == 3 and machine.now == 1000.0
    assert {process.ended_by for process in machine.processes} == {"SIGTERM"}


def test_there_are_no_more_processes_than_submissions(machine):
    outcomes(named("a", "b"), workers=5)
    assert len(machine.processes) == 2


def test_a_process_gets_the_grader_and_a_folder_for_its_files(machine, tmp_path):
    [*grade_all(named("a"), "the grader", 1, scratch=tmp_path)]
    (process,) = machine.processes
    assert (process.grade, process.scratch) == ("the grader", tmp_path)


BREAKS = {
    "raises": "RuntimeError: a fault of the grader",
    "dies": "the process that graded it ended, exit code -9",
    "hangs": "it did not come to an end",
}


@pytest.mark.parametrize("behaviour, reason", BREAKS.items(), ids=BREAKS)
def test_what_breaks_a_process_is_tried_once_more_and_stops_nobody(machine, behaviour, reason):
    machine.behaviour["a"] = behaviour
    grades = outcomes(named(*"abcdef"), workers=2)
    assert [*grades] == [*"bcdef", "a"]  # a is the first of two and holds up nobody
    broken = grades.pop("a")
    assert grades == {student: graded(student) for student in "bcdef"}
    assert (broken.is_final, broken.exercises) == (False, ())
    assert broken.events == (
        f"the first attempt to grade this failed: {reason}",
        f"the second attempt failed: {reason}",
    )
    assert Counter(student for student, _ in machine.began)["a"] == 2
    assert machine.now == 1000.0 + (2 * 1000.0 if behaviour == "hangs" else 0.0)


def test_another_process_takes_the_place_of_one_that_is_lost(machine):
    machine.behaviour["a"] = "dies", "right"
    grades = outcomes(named("a", "b", "c"), workers=1)
    assert grades["a"].is_final and len(machine.processes) == 3
    assert all(process.exitcode is not None for process in machine.processes)
    assert all(process.heard for process in machine.processes)


def test_a_second_attempt_is_made_while_nothing_else_runs(machine):
    for student in "abcd":
        machine.behaviour[student] = "not final", "steps"
    outcomes(named(*"abcde"), workers=3)
    second = machine.began[5:]
    assert [student for student, _ in second] == [*"abcd"]
    assert not any(beside for _, beside in second)
    assert len(machine.processes) == 4


def test_patience_is_for_a_step_and_not_for_the_whole(machine):
    machine.behaviour["a"] = "steps"
    grades = outcomes(named("a"), patience=100.0)
    assert grades == {"a": graded("a")} and machine.now == 1000.0 + 4 * 60
    assert set(machine.waited) == {100.0, 40.0}


def test_a_step_may_take_an_hour_as_a_rule(machine):
    machine.behaviour["a"] = "hangs"
    [*grade_all(named("a"), "the grader", 1)]
    assert machine.now == 1000.0 + 2 * 3600.0


def test_it_waits_for_the_process_with_the_least_time_left(machine):
    machine.behaviour.update(a="hangs", b=("steps", "right"))
    grades = outcomes(named("a", "b"), workers=2, patience=150.0)
    assert grades["b"].is_final and "did not come to an end" in grades["a"].events[0]
    assert min(machine.waited) == 30.0


def test_a_process_has_time_to_tidy_up_and_no_more(machine, monkeypatch):
    monkeypatch.setattr(Process, "needs", 4.0)
    outcomes(named("a"))
    (process,) = machine.processes
    assert (process.ended_by, process.exitcode, machine.now) == ("SIGTERM", 1, 1004.0)


def test_a_process_that_does_not_hear_is_killed(machine, monkeypatch):
    monkeypatch.setattr(Process, "needs", float("inf"))
    outcomes(named("a"))
    (process,) = machine.processes
    assert (process.ended_by, process.exitcode, machine.now) == ("SIGKILL", -9, 1005.0)


def test_a_process_without_a_pipe_is_given_up_although_it_lives(machine):
    machine.behaviour["a"] = "closes", "right"
    grades = outcomes(named("a"))
    assert grades["a"].events == (
        "the first attempt to grade this failed: "
        "the process that graded it ended, exit code None",
    )
    assert machine.now == 1001.0  # its exit code was waited for


def test_all_processes_end_when_nobody_wants_more_grades(machine):
    machine.behaviour["b"] = "hangs"
    judged = grade_all(named(*"abcd"), "the grader", 2)
    next(judged)
    judged.close()
    assert [process.exitcode for process in machine.processes] == [1, 1]
    assert [student for student, _ in machine.began] == ["a", "b"]


def test_a_process_that_died_before_it_had_work_is_seen(machine):
    worker = classroom._Worker("the grader", 60.0, None)
    machine.processes[0].ends(-15, "somebody")
    worker.begin(*named("a"))
    assert worker.outcome(True) == "the process that graded it ended, exit code -15"
    worker.end()


@pytest.mark.parametrize("size, is_read", [(64 << 20, True), ((64 << 20) + 1, False)])
def test_a_grade_has_64_mb_at_most(machine, size, is_read):
    worker = classroom._Worker("the grader", 60.0, None)
    worker.end()
    data = json.dumps({"grade": graded("a").to_json()}).encode()

    def recv_bytes(limit: int) -> bytes:
        if size > limit:
            raise OSError("bad message length")
        return data + b" " * (size - len(data))

    worker.pipe = SimpleNamespace(recv_bytes=recv_bytes)
    assert worker.outcome(True) == (
        graded("a") if is_read else "the process that graded it ended, exit code 1"
    )


def judged(submissions, *rounds: dict) -> list:
    """What comes of outcomes by student, first attempts first.

    Each round has all that is asked for, and only the second is to be alone.
    """
    number = iter(range(2))

    def outcomes(some, alone):
        place = next(number)
        assert alone is (place == 1)
        assert [each.student for each in some] == [*rounds[place]]
        yield from zip(some, rounds[place].values(), strict=True)

    return [
        (submission.student, grade)
        for submission, grade in twice_if_needed(submissions, outcomes)
    ]


def test_a_final_grade_is_passed_on_and_any_other_outcome_has_a_second_attempt():
    first = {
        "a": graded("a", "a word"),
        "b": graded("b", "busy", is_final=False),
        "c": "it died",
        "d": graded("d", "busy", is_final=False),
        "e": "it died",
    }
    second = {
        "b": graded("b", "better"),
        "c": graded("c", "at last"),
        "d": "it hangs",
        "e": "it hangs",
    }
    died = "the first attempt to grade this failed: it died"
    hangs = "the second attempt failed: it hangs"
    (nothing,) = named("e")
    assert judged(named(*"abcde"), first, second) == [
        ("a", graded("a", "a word")),
        ("b", graded("b", "better")),
        ("c", graded("c", "at last", died)),
        ("d", graded("d", "busy", hangs, is_final=False)),
        ("e", nothing.without_points(died, hangs)),
    ]


def test_what_cannot_be_graded_is_told_and_not_tried():
    nothing = Submission("z", Path("z"), "there is no notebook in this folder")
    (first, grade), rest = judged([nothing, *named("a")], {"a": graded("a")}, {})
    assert rest == ("a", graded("a")) and first == "z"
    assert grade.events == ("there is no notebook in this folder",) and not grade.is_final


class Pipe:
    """The worker's end: some orders, and no more after them."""

    def __init__(self, *orders):
        self.orders, self.said = [*orders], []

    def recv(self):
        if not self.orders:
            raise EOFError
        return self.orders.pop(0)

    def send_bytes(self, data: bytes):
        self.said.append(json.loads(data))


@pytest.fixture
def worker(monkeypatch):
    """This process as a worker: what it has done to be one, in order."""
    done = []

    class Thread:
        def __init__(self, target, daemon):
            self.target, self.daemon = target, daemon

        def start(self):
            self.target()
            done.append(f"the thread is {'' if self.daemon else 'no '}daemon")

    command = SimpleNamespace(join=lambda: done.append("the command has ended"))
    monkeypatch.setattr(classroom.os, "setsid", lambda: done.append("a session of its own"))
    monkeypatch.setattr(classroom, "tidy_up_at_the_end", lambda: done.append("tidies up"))
    monkeypatch.setattr(classroom, "end_this_process", lambda: done.append("it ends"))
    monkeypatch.setattr(classroom, "remember_answers", lambda: done.append("remembers"))
    monkeypatch.setattr(classroom.threading, "Thread", Thread)
    monkeypatch.setattr(classroom.multiprocessing, "parent_process", lambda: command)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    return done


def grader(path, student, progress):
    progress()
    if student == "bob":
        raise ValueError(f"no {path}")
    progress()
    return graded(student)


def test_a_worker_tells_each_step_and_a_grade_or_the_reason_why_there_is_none(worker):
    pipe = Pipe(("a.ipynb", "ada"), ("b.ipynb", "bob"), ("c.ipynb", "eve"))
    classroom._serve(pipe, grader, None)
    ada, eve = (
        {"grade": json.loads(json.dumps(graded(name).to_json()))} for name in ("ada", "eve")
    )
    assert pipe.said == [{}, {}, ada, {}, {"failed": "ValueError: no b.ipynb"}, {}, {}, eve]


def test_a_worker_ends_with_the_command_and_not_with_ctrl_c(worker):
    classroom._serve(Pipe(), grader, None)
    assert sorted(worker) == [
        "a session of its own",
        "it ends",
        "remembers",
        "the command has ended",
        "the thread is daemon",
        "tidies up",
    ]
    assert worker.index("the command has ended") < worker.index("it ends")


def test_the_files_of_a_worker_go_where_they_are_deleted(worker, tmp_path):
    classroom._serve(Pipe(), grader, tmp_path)
    assert tempfile.gettempdir() == str(tmp_path)
    classroom._serve(Pipe(), grader, None)
    assert tempfile.tempdir is None  # the usual one


@pytest.fixture
def signals(monkeypatch) -> dict:
    """What each signal does."""
    handlers = {}
    known = SimpleNamespace(
        signal=handlers.__setitem__, SIGTERM=signal.SIGTERM, SIG_IGN=signal.SIG_IGN
    )
    monkeypatch.setattr(classroom, "signal", known)
    return handlers


def test_sigterm_ends_a_process_in_order_and_once(signals):
    classroom.tidy_up_at_the_end()
    with pytest.raises(SystemExit) as ended:
        signals[signal.SIGTERM](signal.SIGTERM, None)
    assert ended.value.code == 1
    assert signals == {signal.SIGTERM: signal.SIG_IGN}  # the next one disturbs nothing


def test_a_process_that_does_not_hear_is_told_each_second(monkeypatch):
    told = []

    def hears(what):
        told.append(what)
        if len(told) == 6:
            raise InterruptedError

    monkeypatch.setattr(classroom, "time", SimpleNamespace(sleep=hears))
    monkeypatch.setattr(classroom.os, "kill", lambda *given: hears(given))
    with pytest.raises(InterruptedError):
        classroom.end_this_process()
    assert told == [(os.getpid(), signal.SIGTERM), 1.0] * 3
