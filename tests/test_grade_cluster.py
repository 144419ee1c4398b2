"""Grades on Dask workers: `make test-cluster` installs Dask and runs this.

In most tests a grader stands in for the one that runs notebooks; it does what the first cell
says.
"""

import importlib.util
import json
import shutil
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

import dask_cluster
import graded
from dask_cluster import DaskCluster
from lessons_grading import command, crew, dask_link, kept, sandbox
from lessons_grading.classroom import twice_if_needed
from lessons_grading.cluster import Cluster
from lessons_grading.judge import grade_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.store import FILE
from lessons_grading.submissions import find_submissions
from lessons_lib.paths import ROOT
from made_class import differences, make_class

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not importlib.util.find_spec("distributed"),
        reason="Dask is not installed: make test-cluster",
    ),
]
needs_sandbox = pytest.mark.skipif(
    sandbox.missing() is not None, reason="there is no bubblewrap that works"
)
LIMITS = Limits(sandboxed=False)


@pytest.fixture
def dask(tmp_path):
    with DaskCluster(tmp_path) as running:
        yield running


class Class:
    """Submissions in a folder, and how often each was tried."""

    def __init__(self, folder: Path):
        self.folder, self.calls = folder / "class", folder / "calls"
        self.folder.mkdir()
        self.calls.mkdir()
        self.said = []

    def hand_in(self, student: str, order: str = "go"):
        path = graded.hand_in(self.folder, order, str(self.calls), name="00.ipynb")
        path.rename(self.folder / f"{student}.ipynb")

    def tried(self, student: str) -> int:
        path = self.calls / student
        return len(path.read_text().split()) if path.exists() else 0

    def judge_of(self, student: str) -> psutil.Process:
        """The process that is at work on the student's notebook."""
        wait_until(lambda: self.tried(student))
        return psutil.Process(int((self.calls / student).read_text().split()[-1]))

    def grade(
        self, dask: DaskCluster, limits=LIMITS, patience=600.0, during=lambda said: None
    ):
        """The grades by student, and what was said."""

        def say(words):
            self.said.append(words)
            during(words)

        with Cluster(dask.address, 3, limits, patience, say, dask_cluster.GRADER) as workers:
            judged = twice_if_needed(find_submissions(self.folder), workers.outcomes)
            return {submission.student: grade for submission, grade in judged}


@pytest.fixture
def students(tmp_path):
    return Class(tmp_path)


def wait_until(happened):
    while not happened():
        time.sleep(0.05)


def test_each_submission_gets_the_grade_that_a_worker_gives_it(dask, students):
    for number in range(9):
        students.hand_in(f"s{number}")
    (students.folder / "none").mkdir()
    (students.folder / "link.ipynb").symlink_to("s0.ipynb")
    dask.start_worker("one", "--nthreads", "2")
    dask.start_worker("two")
    grades = students.grade(dask)
    assert grades.pop("none").events == ("there is no notebook in this folder",)
    link = grades.pop("link")
    assert not link.is_final and "links are not followed" in link.events[0]
    assert {name: grade.events for name, grade in grades.items()} == {
        f"s{number}": ("seed 3",) for number in range(9)
    }
    assert all(students.tried(name) == 1 and grades[name].is_final for name in grades)
    assert students.said in ([], ["The scheduler has no workers: waiting for one."])


def test_one_that_brings_its_worker_down_twice_is_set_aside_and_the_rest_goes_on(
    dask, students
):
    for name in "abc":
        students.hand_in(name)
    students.hand_in("down", "down")
    students.hand_in("once", "down once")
    for number in range(4):
        dask.start_worker(f"w{number}")
    grades = students.grade(dask)
    assert students.tried("down") == 2 and students.tried("once") == 2
    down = grades.pop("down")
    assert not down.is_final and not down.exercises
    assert [words.split(",")[0] for words in down.events] == [
        "the first attempt to grade this failed: its worker ended",
        "the second attempt failed: its worker ended",
    ]
    assert grades.pop("once").events[0] == "seed 3"
    assert all(grade.is_final and grade.events == ("seed 3",) for grade in grades.values())


def test_a_worker_that_a_nanny_starts_again_is_another_worker(dask, students):
    """Also under the address of the one before, where Dask would try the same once more."""
    students.hand_in("down", "down")
    students.hand_in("ada")
    port = str(dask_cluster.free_port())
    dask.start_worker("phoenix", "--nanny", "--worker-port", port)
    grades = students.grade(dask)
    assert students.tried("down") == 2
    assert not grades["down"].is_final and grades["ada"].is_final


def test_a_fault_of_a_grading_leaves_the_worker_alone(dask, students):
    for order in ("raise", "die", "big"):
        students.hand_in(order, order)
    dask.start_worker("only")
    grades = students.grade(dask)
    told = {name: " ".join(grade.events) for name, grade in grades.items()}
    assert "No space left on device, on only" in told["raise"]
    assert "the process that graded it ended, exit code -9, on only" in told["die"]
    assert "its grade has 5 MB" in told["big"]
    assert not any(grade.is_final for grade in grades.values())
    assert dask.processes["only"].poll() is None


def test_a_grading_that_does_not_come_to_an_end_is_given_up(dask, students):
    students.hand_in("ada", "wait 3600")
    students.hand_in("bob")
    dask.start_worker("only")
    grades = students.grade(dask, patience=2.0)
    assert "it did not come to an end, on only" in grades["ada"].events[0]
    assert grades["bob"].is_final


def test_a_worker_with_a_full_disk_gets_no_more_work(dask, students):
    for number in range(8):
        students.hand_in(f"s{number}", "full broken")
    dask.start_worker("broken")
    (students.calls / "broken").write_text(str(dask.processes["broken"].pid))
    dask.start_worker("sound")
    grades = students.grade(dask)
    assert all(grade.is_final for grade in grades.values())
    failed = [words for words in students.said if "submissions in a row" in words]
    assert len(failed) <= 1 and all(
        words.startswith("Worker broken") and "No space left" in words for words in failed
    )


def test_where_all_disks_are_full_the_command_stops_with_the_reason(dask, students):
    for number in range(5):
        students.hand_in(f"s{number}", "raise")
    dask.start_worker("full")
    with pytest.raises(crew.NoWorkers) as stopped:
        students.grade(dask)
    assert "no worker is left that may grade. full (tcp://" in str(stopped.value)
    assert "3 submissions in a row failed there, the last with OSError: [Errno 28]" in str(
        stopped.value
    )
    assert sum(students.tried(f"s{number}") for number in range(5)) == 3


@pytest.mark.parametrize("is_noticed", [True, False], ids=["slowly", "at once"])
def test_a_scheduler_that_is_started_again_costs_nothing(dask, students, is_noticed):
    students.hand_in("ada", "wait 1")
    students.hand_in("bob", "wait 1")
    students.hand_in("cleo", "wait 1")

    def restart():
        wait_until(lambda: students.tried("ada"))
        dask.kill("scheduler")
        dask.kill("one")
        wait_until(lambda: not is_noticed or "not answer" in " ".join(students.said))
        dask.start_scheduler()
        dask.start_worker("two")

    dask.start_worker("one")
    restarts = threading.Thread(target=restart, daemon=True)
    restarts.start()
    grades = students.grade(dask)
    restarts.join()
    assert {name: grade.events for name, grade in grades.items()} == dict.fromkeys(
        ["ada", "bob", "cleo"], ("seed 3",)
    )
    assert not is_noticed or any("does not answer" in words for words in students.said)


@pytest.fixture
def impatient(monkeypatch):
    """From when it is called on, nothing that is away is waited for."""

    def impatient():
        monkeypatch.setattr(crew, "COMES_BACK", 1.0)
        monkeypatch.setattr(dask_link, "CONNECT_LIMIT", 1.0)

    return impatient


def test_a_scheduler_that_does_not_come_back_is_a_sentence(dask, students, impatient):
    students.hand_in("ada", "wait 3600")
    dask.start_worker("one")

    def end():
        wait_until(lambda: students.tried("ada"))
        impatient()
        dask.kill("scheduler")

    ends = threading.Thread(target=end, daemon=True)
    ends.start()
    with pytest.raises(ConnectionError, match="no Dask scheduler answers at tcp://127"):
        students.grade(dask)
    ends.join()


def test_a_scheduler_without_workers_is_a_sentence(dask, students, monkeypatch):
    monkeypatch.setattr(crew, "COMES_BACK", 0.1)
    students.hand_in("ada")
    with pytest.raises(crew.NoWorkers, match="has had no workers for too long"):
        students.grade(dask)
    assert students.said == ["The scheduler has no workers: waiting for one."]


@needs_sandbox
def test_a_worker_that_is_not_like_us_is_refused_by_its_name(dask, students, tmp_path):
    """One that is like us grades."""
    other = tmp_path / "other"
    for folder in kept.COURSE:
        shutil.copytree(
            ROOT / folder, other / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    (other / "lessons_lib" / "more.py").touch()
    (tmp_path / "mistakes").mkdir()
    (tmp_path / "mistakes" / "0.1.mistakes").write_text(
        "## tens\nYou count in tens.\n    returns: 10\n"
    )
    reasons = {
        "older": "it has another version of the course",
        "bare": "the course is not installed there, or is older (No module named",
        "richer": "LESSONS_MISTAKES names other mistakes there",
        "naked": "Grading needs bubblewrap",
    }
    students.hand_in("ada")
    dask.start_worker("older", path=[str(other), *sys.path])
    dask.start_worker("bare", python=(sys.executable, "-S"), path=[dask_cluster.site()])
    dask.start_worker("richer", LESSONS_MISTAKES=str(tmp_path / "mistakes"))
    dask.start_worker("naked", PATH=str(tmp_path))

    def begin_another(words):
        if sum("gets nothing" in each for each in students.said) == len(reasons):
            dask.start_worker("like us")

    with pytest.MonkeyPatch.context() as patch:
        # those that are there are not enough, and one more will come
        patch.setattr(crew.Crew, "expect_some", lambda self, busy: None)
        grades = students.grade(dask, limits=Limits(), during=begin_another)
    for name, reason in reasons.items():
        (words,) = (each for each in students.said if each.startswith(f"Worker {name} ("))
        assert f"gets nothing to grade: {reason}" in words
    assert grades["ada"].is_final and students.tried("ada") == 1


def test_what_was_at_work_ends_with_the_command(dask, students):
    students.hand_in("ada", "wait 3600")
    students.hand_in("bob", "go")
    dask.start_worker("one", "--nthreads", "2")
    with Cluster(
        dask.address, 3, LIMITS, 600.0, students.said.append, dask_cluster.GRADER
    ) as workers:
        for submission, _ in workers.outcomes(find_submissions(students.folder), False):
            assert submission.student == "bob"
            judge = students.judge_of("ada")
            break
    wait_until(lambda: not judge.is_running())


def test_a_judge_ends_with_its_worker(dask, students, impatient):
    students.hand_in("ada", "wait 3600")
    dask.start_worker("one")

    def end():
        judge = students.judge_of("ada")
        dask.kill("one")
        wait_until(lambda: not judge.is_running())
        impatient()
        dask.kill("scheduler")

    ends = threading.Thread(target=end, daemon=True)
    ends.start()
    with pytest.raises(ConnectionError):
        students.grade(dask)
    ends.join()


@needs_sandbox
def test_a_worker_grades_as_this_machine_does(dask, tmp_path, capsys):
    """Right, wrong, harmful, and no notebook at all."""
    folder = tmp_path / "class"
    cells = {
        "ada": (graded.RIGHT,),
        "alan": (graded.WRONG,),
        "eve": ("import os\nos._exit(3)", graded.RIGHT),
        "zuse": ("x = '\ud800'", graded.WRONG),
    }
    for student, sources in cells.items():
        (folder / student).mkdir(parents=True)
        graded.hand_in(folder / student, *sources)
    (folder / "none.ipynb").write_text("no JSON")
    dask.start_worker("one", "--nthreads", "2")
    words = [str(folder), "--seed", "5", "--scheduler", dask.address]
    assert command.main(words) == 0
    said = capsys.readouterr()
    assert "Graded: 5, 0 of them in an earlier run." in said.out
    data = json.loads((tmp_path / "results" / "results.json").read_text())
    for there in data["submissions"]:
        path = next(folder.glob(f"{there['student']}*/*.ipynb"), folder / "none.ipynb")
        here = grade_notebook(path, there["student"], 5).to_json()
        for grade in (here, there):
            grade["seconds"] = 0.0
            for entry in grade["exercises"]:
                entry["seconds"] = 0.0
        assert json.loads(json.dumps(here)) == there
    assert command.main(words) == 0
    assert "Graded: 5, 5 of them in an earlier run." in capsys.readouterr().out


@pytest.mark.parametrize(
    "address, reason",
    [
        ("tcp://127.0.0.1:1", "Stopped: no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("carrier-pigeon://home", "Stopped: no Dask scheduler answers at carrier-pigeon://"),
    ],
)
def test_a_scheduler_that_is_not_there_is_a_sentence(
    students, capsys, impatient, address, reason
):
    impatient()
    students.hand_in("ada")
    assert command.main([str(students.folder), "--scheduler", address]) == 1
    said = capsys.readouterr().err
    assert reason in said and "the same command goes on from here" in said
    assert "Traceback" not in said


@pytest.mark.slow
@needs_sandbox
def test_a_class_of_two_hundred_loses_a_worker_and_no_grade(dask, tmp_path, capsys):
    """Two workers, of which one is killed in the middle: what comes out was predicted."""
    folder, results = tmp_path / "class", tmp_path / "results"
    expected = make_class(folder, 200)
    for name in ("one", "two"):
        dask.start_worker(name)
    killed = []

    def kill_in_the_middle():
        def graded() -> int:
            with suppress(sqlite3.Error), closing(sqlite3.connect(results / FILE)) as store:
                return store.execute("SELECT count(*) FROM grades").fetchone()[0]
            return 0

        wait_until(lambda: (results / FILE).exists() and graded() >= 100)
        dask.kill("one")
        killed.append(graded())

    killer = threading.Thread(target=kill_in_the_middle, daemon=True)
    killer.start()
    assert command.main([str(folder), "--seed", "1", "--scheduler", dask.address]) == 0
    assert 100 <= killed[0] < 200
    data = json.loads((results / "results.json").read_text())
    assert differences(expected, data["submissions"]) == []
    assert all(grade["is_final"] for grade in data["submissions"])
    lost = [
        event
        for grade in data["submissions"]
        for event in grade["events"]
        if event.startswith("the first attempt to grade this failed: its worker ended, one")
    ]
    assert len(lost) <= 1
    assert "Graded: 200, 0 of them in an earlier run." in capsys.readouterr().out
