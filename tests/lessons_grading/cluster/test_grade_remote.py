"""What a Dask worker runs, without Dask: one process after another, and what becomes of it.

The grader here runs no notebooks. It does what their first cell says.
"""

import json
import os
import signal
import threading
import time

import psutil
import pytest

import graded
from dask_cluster import GRADER
from lessons_grading import judge_process, remote
from lessons_grading.grades import SubmissionGrade
from lessons_grading.digests import course_digest
from lessons_grading.notebook import read_notebook
from lessons_grading.sandbox import Limits

pytestmark = pytest.mark.slow  # many a process that imports PyTorch


@pytest.fixture(scope="module", autouse=True)
def nobody_stays():
    yield
    while remote._idle:
        remote._idle.pop().end()


@pytest.fixture
def order(tmp_path):
    """Makes an order for this worker."""

    def made(does: str, command="ours", instance=remote.INSTANCE, patience=600.0, **about):
        notebook = read_notebook(graded.hand_in(tmp_path, does, str(tmp_path)))
        limits = vars(Limits(sandboxed=False, unseen=("/nowhere",)))
        work = judge_process.order_of(notebook, "a.ipynb", "ada", 7, limits, GRADER)
        here = {name: judge_process.about()[name] for name in ("course", "mistakes")}
        return json.dumps(
            here
            | {"instance": instance, "command": command, "patience": patience, "work": work}
            | about
        )

    return made


def graded_as(order: str) -> dict:
    return json.loads(remote.grade(order))


def running() -> psutil.Process:
    """The process that will get the next order."""
    return psutil.Process(remote._idle[-1].process.pid)


def test_it_says_what_is_there():
    said = json.loads(remote.look())
    assert said == {"instance": remote.INSTANCE, "about": judge_process.about()}
    assert said["about"]["course"] == course_digest() and not said["about"]["problem"]


def test_one_process_grades_one_after_another(order):
    json.loads(remote.look())
    judge = running()
    for _ in range(2):
        grade = SubmissionGrade.from_json(graded_as(order("go"))["grade"])
        assert (grade.student, grade.notebook, grade.lesson) == ("ada", "a.ipynb", "00")
        assert grade.events == ("seed 7",)
        assert running() == judge


def test_a_fault_of_the_grader_is_told(order):
    assert graded_as(order("raise")) == {
        "failed": "OSError: [Errno 28] No space left on device"
    }
    assert "grade" in graded_as(order("go"))


def test_a_grade_that_is_too_large_is_not_sent(order):
    assert graded_as(order("big")) == {"lost": "its grade has 5 MB"}
    assert "grade" in graded_as(order("go"))


def test_a_process_that_ends_is_told_and_another_goes_on(order):
    json.loads(remote.look())
    judge = running()
    how = "the process that graded it ended, exit code -9"
    assert graded_as(order("die")) == {"lost": how}
    assert "grade" in graded_as(order("go")) and running() != judge


def test_what_does_not_come_to_an_end_is_ended(order):
    json.loads(remote.look())
    judge = running()
    lost = {"lost": "it did not come to an end"}
    assert graded_as(order("wait 3600", patience=0.1)) == lost
    assert not judge.is_running() and not remote._busy


@pytest.mark.parametrize(
    "changed, reply",
    [
        ({"instance": "another"}, {"restarted": "its worker was started again"}),
        ({"course": "another"}, {"other": "its course changed meanwhile"}),
        ({"mistakes": "others"}, {"other": "its mistakes changed meanwhile"}),
    ],
)
def test_an_order_for_another_worker_is_given_back(order, changed, reply):
    assert graded_as(order("go", **changed)) == reply
    assert not remote._busy


def test_only_what_the_command_has_at_work_is_stopped(order, tmp_path):
    replies = {}

    def work(command: str, does: str):
        replies[command] = graded_as(order(does, command))

    threads = [
        threading.Thread(target=work, args=("ours", "wait 3600")),
        threading.Thread(target=work, args=("theirs", f"until {tmp_path / 'now'}")),
    ]
    for thread in threads:
        thread.start()
        while (
            len((tmp_path / "ada").read_text().split() if (tmp_path / "ada").exists() else "")
            < 1
        ):
            time.sleep(0.05)
        (tmp_path / "ada").unlink()
    remote.stop("ours")
    threads[0].join()
    assert "lost" in replies["ours"]
    (tmp_path / "now").touch()
    threads[1].join()
    assert "grade" in replies["theirs"]


def test_a_process_that_waited_long_gets_no_further_work(order, monkeypatch):
    json.loads(remote.look())
    judge = running()
    monkeypatch.setattr(remote, "STILL_FRESH", -1.0)
    assert "grade" in graded_as(order("go"))
    assert not judge.is_running()


def test_one_that_ended_while_it_waited_gets_none_either(order):
    json.loads(remote.look())
    judge = running()
    judge.send_signal(signal.SIGKILL)
    remote._idle[-1].process.wait()
    assert "grade" in graded_as(order("go"))


def test_a_course_that_is_not_there_is_told(monkeypatch):
    while remote._idle:
        remote._idle.pop().end()
    monkeypatch.setattr(remote, "_PROCESS", "raise SystemExit(5)")
    said = json.loads(remote.look())
    assert said == {
        "instance": remote.INSTANCE,
        "failed": "the process that graded it ended, exit code 5",
    }
    assert not remote._idle and not remote._busy


@pytest.mark.parametrize("closed", ["pipe", "stdin"])
def test_it_ends_with_its_worker(closed):
    judge = remote._Judge()
    pid = psutil.Process(judge.process.pid)
    assert os.getsid(pid.pid) == pid.pid  # a signal for the worker is none for it
    (judge.pipe if closed == "pipe" else judge.process.stdin).close()
    judge.process.wait(600)
    judge.end()
