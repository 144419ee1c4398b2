"""The process beside a Dask worker: what it says, and how it takes orders.

Here it has no process of its own.
"""

import json
import queue
import sys
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from lessons_grading import judge_process, sandbox, try_answer
from lessons_grading.grades import SubmissionGrade
from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.notebook import Cell, Notebook
from lessons_grading.sandbox import Limits
from lessons_lib import checks

LIMITS = Limits(sandboxed=False, memory=3 << 30, unseen=("/nowhere",))
NOTEBOOK = Notebook("a digest", "00", (Cell(1, "x = 1"), Cell(3, "y = 2")), "a problem")


class Worker:
    """In place of the pipe to the worker: its orders, and what is sent to it.

    left: whether it ends with its last order.
    """

    def __init__(self):
        self.orders, self.sent, self.left = deque(), [], False
        self.number = None

    def connect(self, number: int):
        self.number = number
        return self

    def poll(self, seconds: float) -> bool:
        return bool(self.orders) or self.left

    def recv_bytes(self) -> bytes:
        if not self.orders:
            raise EOFError
        return json.dumps(self.orders.popleft()).encode()

    def send_bytes(self, data: bytes):
        self.sent.append(json.loads(data))


@pytest.fixture
def worker(monkeypatch):
    worker = Worker()
    worker.watched, worker.is_tidy = queue.Queue(), []
    monkeypatch.setattr(judge_process, "Connection", worker.connect)
    monkeypatch.setattr(sys, "argv", ["serve", "33"])
    monkeypatch.setattr(try_answer, "_known", None)
    monkeypatch.setattr(judge_process, "about", lambda: {"course": "ours"})
    monkeypatch.setattr(
        judge_process, "tidy_up_at_the_end", lambda: worker.is_tidy.append(True)
    )
    monkeypatch.setattr(
        judge_process,
        "_end_with_the_worker",
        lambda: worker.watched.put(threading.current_thread().daemon),
    )
    return worker


@pytest.fixture
def grader(monkeypatch):
    """A grader in a module of its own. It makes a step, and then what `does` says."""
    given = SimpleNamespace(calls=[], does=lambda: (), name="graders:grade")

    def grade(notebook, name, student, seed, limits, progress):
        given.calls.append((notebook, name, student, seed, limits))
        progress()
        return SubmissionGrade(student, name, notebook.digest, "00", (), given.does(), 0.5)

    monkeypatch.setitem(sys.modules, "graders", SimpleNamespace(grade=grade))
    return given


def order(**changed) -> dict:
    words = (NOTEBOOK, "a.ipynb", "ada", 7, vars(LIMITS), "graders:grade")
    return judge_process.order_of(*words) | changed


def test_it_says_what_is_here_and_ends_without_an_order(worker):
    judge_process.serve()
    assert worker.sent == [{"course": "ours"}] and worker.number == 33


def test_it_tidies_up_and_remembers_answers(worker):
    judge_process.serve()
    assert worker.is_tidy == [True] and try_answer._known == {}


def test_a_daemon_thread_watches_for_the_workers_end(worker):
    judge_process.serve()
    assert worker.watched.get(timeout=60) is True


@pytest.mark.parametrize("left", [False, True])
def test_each_order_has_its_steps_and_then_its_grade(worker, grader, left):
    worker.orders += [order(), order(student="bob")]
    worker.left = left
    judge_process.serve()
    _, step, first, another_step, second = worker.sent
    assert step == another_step == {}
    grade = SubmissionGrade.from_json(first["grade"])
    assert grade == SubmissionGrade("ada", "a.ipynb", "a digest", "00", (), (), 0.5)
    assert second["grade"]["student"] == "bob"


def test_what_an_order_brings_is_what_the_grader_gets(worker, grader):
    worker.orders.append(order())
    judge_process.serve()
    assert grader.calls == [(NOTEBOOK, "a.ipynb", "ada", 7, LIMITS)]


def test_a_fault_of_the_grader_is_told_and_the_next_order_is_taken(worker, grader):
    def fails():
        raise OSError("no space")

    grader.does = fails
    worker.orders += [
        order(),
        order(grader="graders:nothing"),
        order(grader="no.module:grade"),
    ]
    judge_process.serve()
    replies = [reply["failed"] for reply in worker.sent[1:] if reply]
    assert replies[0] == "OSError: no space" and "nothing" in replies[1]
    assert replies[2].startswith("ModuleNotFoundError: No module named 'no'")


def test_a_grade_that_is_too_large_is_lost(worker, grader, monkeypatch):
    worker.orders.append(order())
    judge_process.serve()
    reply = worker.sent[-1]
    size = len(json.dumps(reply).encode())
    for limit, sent in ((size, reply), (size - 1, {"lost": "its grade has 0 MB"})):
        monkeypatch.setattr(judge_process, "LARGEST_REPLY", limit)
        worker.orders.append(order())
        judge_process.serve()
        assert worker.sent[-1] == sent


def test_a_lost_grade_tells_its_megabytes(worker, grader):
    grader.does = lambda: ("x" * (5 << 20),)
    worker.orders.append(order())
    judge_process.serve()
    assert worker.sent[-1] == {"lost": "its grade has 5 MB"}


def test_what_is_here_decides_whether_it_may_grade(monkeypatch):
    monkeypatch.setattr(sandbox, "missing", lambda: "no bubblewrap")
    assert judge_process.about() == {
        "course": course_digest(),
        "mistakes": mistakes_digest(),
        "problem": "",
        "sandbox": "no bubblewrap",
        "limited_by": sandbox.limited_by(Limits()),
    }


@pytest.mark.parametrize("error", [checks.MistakesError, OSError])
def test_mistakes_that_cannot_be_read_are_a_problem(monkeypatch, error):
    def refuse(lessons):
        raise error(f"0.1.mistakes:1 cannot be read for {len(lessons)} lessons")

    monkeypatch.setattr(checks, "read_mistakes", refuse)
    about, count = judge_process.about(), len(checks.lessons())
    problem = f"0.1.mistakes:1 cannot be read for {count} lessons"
    assert (about["mistakes"], about["problem"]) == ("", problem)


@pytest.mark.parametrize("how", [b"", OSError()], ids=["closed", "broken"])
def test_it_ends_when_its_input_does_and_not_before(monkeypatch, how):
    chunks, ended = deque([b"x", b"y", how]), []

    def read(size):
        chunk = chunks.popleft()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    reads = {0: read}
    monkeypatch.setattr(
        judge_process, "os", SimpleNamespace(read=lambda number, size: reads[number](size))
    )
    monkeypatch.setattr(judge_process, "end_this_process", lambda: ended.append(len(chunks)))
    judge_process._end_with_the_worker()
    assert ended == [0]
