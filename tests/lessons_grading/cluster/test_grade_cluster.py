"""Grades on Dask workers: `make test-all TOOL=cluster` installs Dask and runs this.

In most tests the grader runs no notebooks. It does what their first cell says.
"""

import importlib.util
import json
import shutil
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress

import pytest

import dask_command
import graded
from dask_cluster import DaskCluster
from fake_grader import students  # noqa: F401
from lessons_grading import command
from lessons_grading.store import FILE
from lessons_lib import rooms
from lessons_lib.paths import ROOT
from made_class import differences, make_class

pytestmark = [
    pytest.mark.tool("cluster"),
    pytest.mark.skipif(
        not importlib.util.find_spec("distributed"),
        reason="Dask is not installed: make test-all TOOL=cluster",
    ),
    graded.needs_sandbox,
]


@pytest.fixture
def dask(tmp_path):
    with DaskCluster(tmp_path) as running:
        yield running


def wait_until(happened):
    while not happened():
        time.sleep(0.05)


def run(students, dask, *words: str, **environment) -> str:
    """What the command says, which has to end well."""
    begun = dask_command.begin(students.folder, dask.address, "--seed", "3", *words)
    said, _ = begun.communicate()
    assert begun.returncode == 0, said
    return said


def test_each_submission_gets_the_grade_that_a_worker_gives_it(dask, students):
    for number in range(9):
        students.hand_in(f"s{number}")
    dask.start_worker("one", "--nthreads", "2")
    dask.start_worker("two")
    assert "Graded: 9, 0 of them in an earlier run." in run(students, dask)
    assert all(
        grade["is_final"] and grade["events"] == ["seed 3"]
        for grade in students.grades().values()
    )
    assert "Graded: 9, 9 of them in an earlier run." in run(students, dask)
    assert [*students.all_tried().values()] == [1] * 9


def test_a_worker_that_is_not_like_us_is_refused_by_its_address(dask, students, tmp_path):
    """One that is like us, and comes later, grades."""
    other = tmp_path / "other"
    for folder in rooms.JUDGING:
        shutil.copytree(
            ROOT / folder, other / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    (other / "lessons_lib" / "more.py").touch()
    (tmp_path / "mistakes").mkdir()
    (tmp_path / "mistakes" / "0.1.mistakes").write_text(
        "## tens\nYou count in tens.\n    returns: 10\n"
    )
    reasons = (
        "it has another version of the course",
        "LESSONS_MISTAKES names other mistakes there",
        "Grading needs bubblewrap",
    )
    students.hand_in("ada")
    dask.start_worker("older", path=[str(other), *sys.path])
    dask.start_worker("richer", LESSONS_MISTAKES=str(tmp_path / "mistakes"))
    dask.start_worker("naked", PATH=str(tmp_path))
    refused = dask_command.begin(students.folder, dask.address)
    said, _ = refused.communicate()  # nobody is left
    assert refused.returncode == 1 and "no worker is left that may grade." in said
    for reason in reasons:
        assert f"gets nothing to grade: {reason}" in said
    dask.start_worker("like us")
    run(students, dask)
    assert students.grades()["ada"]["is_final"] and students.tried("ada") == 1


def test_a_fault_of_a_grading_leaves_the_worker_alone_and_is_tried_again(dask, students):
    for order in ("raise", "die", "big"):
        students.hand_in(order, order)
    dask.start_worker("only")
    assert "Without a final grade: 3." in run(students, dask)
    told = {name: " ".join(grade["events"]) for name, grade in students.grades().items()}
    assert "No space left on device" in told["raise"]
    assert "the process that graded it ended, exit code -9" in told["die"]
    assert "its grade has 5 MB" in told["big"]
    assert students.all_tried() == {"big": 2, "die": 2, "raise": 2}
    assert dask.processes["only"].poll() is None


def test_one_that_brings_its_workers_down_is_set_aside_and_the_rest_goes_on(dask, students):
    for name in "abc":
        students.hand_in(name)
    students.hand_in("once", "down once")
    for number in range(3):
        dask.start_worker(f"w{number}")
    run(students, dask)
    assert all(grade["is_final"] for grade in students.grades().values())
    assert students.tried("once") == 2


def test_a_scheduler_that_is_gone_is_a_sentence_and_the_next_run_goes_on(dask, students):
    students.hand_in("ada")
    students.hand_in("bob", f"until {students.calls / 'go'}")
    dask.start_worker("one", "--nthreads", "2")
    begun = dask_command.begin(students.folder, dask.address, "--seed", "3")
    wait_until(lambda: students.tried("bob") and num_kept(students.results))
    dask.kill("scheduler")
    said, _ = begun.communicate()
    assert begun.returncode == 1 and "Traceback" not in said
    assert "Stopped: the Dask scheduler is gone. What is graded so far is kept" in said
    dask.start_scheduler()
    dask.start_worker("two")
    (students.calls / "go").touch()
    assert "Graded: 2, 1 of them in an earlier run." in run(students, dask)


def num_kept(results) -> int:
    with suppress(sqlite3.Error), closing(sqlite3.connect(results / FILE)) as store:
        return store.execute("SELECT count(*) FROM graded").fetchone()[0]
    return 0


@pytest.mark.parametrize(
    "address, reason",
    [
        ("tcp://127.0.0.1:1", "Stopped: no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("carrier-pigeon://home", "Stopped: no Dask scheduler answers at carrier-pigeon://"),
    ],
)
def test_a_scheduler_that_is_not_there_is_a_sentence(students, capsys, address, reason):
    students.hand_in("ada")
    assert command.main([str(students.folder), "--scheduler", address]) == 1
    said = capsys.readouterr().err
    assert reason in said and "the same command goes on from here" in said
    assert "Traceback" not in said


def test_commands_share_the_workers_and_one_that_is_stopped_ends_what_it_had_at_work(
    dask, students
):
    students.hand_in("ada", f"until {students.calls / 'go'}")
    dask.start_worker("one", "--nthreads", "4")
    commands = {}
    for seed in (3, 4, 5):
        words = "--seed", str(seed), "--results", str(students.results / str(seed))
        commands[seed] = dask_command.begin(students.folder, dask.address, *words)
    wait_until(lambda: students.tried("ada") == 3)
    commands[5].send_signal(2)
    said, _ = commands[5].communicate()
    assert commands[5].returncode == 130 and "the same command goes on from here" in said
    (students.calls / "go").touch()
    for seed in (3, 4):
        said, _ = commands[seed].communicate()
        assert commands[seed].returncode == 0, said
        data = json.loads((students.results / str(seed) / "results.json").read_text())
        assert data["submissions"][0]["events"] == [f"seed {seed}"]


@pytest.mark.slow
def test_a_class_of_two_hundred_loses_a_worker_and_no_grade(dask, tmp_path, capsys):
    """Two workers, of which one is killed in the middle: what comes out was predicted."""
    folder, results = tmp_path / "class", tmp_path / "results"
    expected = make_class(folder, 200)
    for name in ("one", "two"):
        dask.start_worker(name)
    killed = []

    def kill_in_the_middle():
        wait_until(lambda: (results / FILE).exists() and num_kept(results) >= 100)
        dask.kill("one")
        killed.append(num_kept(results))

    killer = threading.Thread(target=kill_in_the_middle, daemon=True)
    killer.start()
    assert command.main([str(folder), "--seed", "1", "--scheduler", dask.address]) == 0
    assert 100 <= killed[0] < 200
    data = json.loads((results / "results.json").read_text())
    assert differences(expected, data["submissions"]) == []
    assert all(grade["is_final"] for grade in data["submissions"])


def test_real_notebooks_are_graded_there(dask, tmp_path, capsys):
    """Right, wrong, harmful, and no notebook at all."""
    cells = {
        "ada": (graded.RIGHT,),
        "alan": (graded.WRONG,),
        "eve": ("import os\nos._exit(3)", graded.RIGHT),
    }
    for student, sources in cells.items():
        (tmp_path / "class" / student).mkdir(parents=True)
        graded.hand_in(tmp_path / "class" / student, *sources)
    (tmp_path / "class" / "none.ipynb").write_text("no JSON")
    dask.start_worker("one", "--nthreads", "2")
    words = [str(tmp_path / "class"), "--seed", "5", "--scheduler", dask.address]
    assert command.main(words) == 0
    data = json.loads((tmp_path / "results" / "results.json").read_text())
    found = {
        each["student"]: [entry["mistake"] for entry in each["exercises"]]
        for each in data["submissions"]
    }
    assert found == {"ada": [None], "alan": ["floor-division"], "eve": [None], "none": []}
