"""Grades on Dask workers: `make test-all TOOL=cluster` installs Dask and runs this.

In most tests the grader runs no notebooks. It does what their first cell says.
"""

import json
import shutil
import sqlite3
import sys
import threading
from contextlib import closing, suppress

import pytest

import dask_cluster
import graded
from dask_class import (  # noqa: F401
    LIMITS,
    dask,
    impatient,
    needs_sandbox,
    on_a_cluster,
    students,
    wait_until,
)
from lessons_grading import command, crew, digests
from lessons_grading.cluster import Cluster
from lessons_grading.judge import grade_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.store import FILE
from lessons_grading.submissions import find_submissions
from lessons_lib.paths import ROOT
from made_class import differences, make_class

pytestmark = on_a_cluster


@needs_sandbox
def test_a_worker_that_is_not_like_us_is_refused_by_its_name(dask, students, tmp_path):
    """One that is like us grades."""
    other = tmp_path / "other"
    for folder in digests.COURSE:
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
            # these depend on what its process had graded before
            grade |= {"seconds": 0.0, "tried": 0, "repeated": 0}
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
