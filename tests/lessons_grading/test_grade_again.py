"""Interrupted commands, full disks, two commands at once, and a machine that is too slow.

Nothing is lost, and nothing becomes final that should not."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from test_grade_classroom import ALL_RIGHT, called, run
from test_grade_folders import class_folder  # noqa: F401

from lessons_grading import classroom, command, digests
from lessons_grading.results_lock import Claim
from lessons_grading.classroom import grade_all
from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import digest_of
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import find_submissions
from lessons_processes import isolation


def unfinished_grader(path, student, seed=0, limits=None, progress=lambda: None):
    """A grade that is final at the second attempt, but never for "b".

    Notes how many graders run.
    """
    with path.with_suffix(".log").open("a") as log:
        beside = [
            each
            for each in psutil.Process().parent().children()
            if each.status() != psutil.STATUS_ZOMBIE
        ]
        log.write(f"{len(beside) - 1}\n")
    tried = len(path.with_suffix(".log").read_text().split())
    is_final = tried > 1 and path.stem != "b"
    return SubmissionGrade(
        student,
        path.name,
        digest_of(b""),
        "00",
        (ALL_RIGHT,),
        (f"attempt {tried}",),
        0.1,
        is_final,
    )


def test_what_was_not_finished_is_tried_again_alone_and_then_by_the_next_run(
    class_folder, capsys
):
    isolation.end_waiting()  # of another test; it would count as a grader
    for name in "abc":
        (class_folder / f"{name}.ipynb").touch()
    grades = {
        each.student: grade
        for each, grade in grade_all(find_submissions(class_folder), unfinished_grader, 3)
    }
    assert {name: (grade.is_final, grade.events) for name, grade in grades.items()} == {
        "a": (True, ("attempt 2",)),
        "b": (False, ("attempt 2",)),
        "c": (True, ("attempt 2",)),
    }
    for name in "abc":
        assert (class_folder / f"{name}.log").read_text().split()[1] == "0"
        (class_folder / f"{name}.log").unlink()
    for _ in range(2):
        assert (
            command.main(
                [str(class_folder), "--no-sandbox", "--workers", "2"], grader=unfinished_grader
            )
            == 0
        )
        assert (
            "Without a final grade: 1. The same command tries them again."
            in capsys.readouterr().out
        )
    assert {
        name: len((class_folder / f"{name}.log").read_text().split()) for name in "abc"
    } == {"a": 2, "b": 4, "c": 2}


class Steps:
    """A stand-in for the clock and for waiting: each look at the worker takes a minute."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def wait(self, pipes, seconds):
        self.now += min(60.0, seconds)
        for pipe in pipes:
            pipe.poll(None)
        return pipes


def steady_grader(path, student, progress):
    for _ in range(500):
        progress()
    return SubmissionGrade(student, path.name, digest_of(b""), "00", (ALL_RIGHT,), (), 0.1)


def test_patience_is_for_a_step_and_not_for_the_whole(class_folder, monkeypatch):
    """A notebook whose answers hang takes long, and so does each of its steps."""
    (class_folder / "a.ipynb").touch()
    clock = Steps()
    monkeypatch.setattr(classroom, "time", clock)
    monkeypatch.setattr(classroom, "wait", clock.wait)
    ((_, grade),) = grade_all(find_submissions(class_folder), steady_grader, 1, patience=100.0)
    assert grade.is_final and clock.now > 20_000


def test_patience_covers_the_longest_step_that_the_limits_allow():
    limits = Limits()
    # by the clock a run may take ten times as long as its limit
    for seconds in (120.0, limits.notebook_seconds):
        assert command.patience(limits) >= 10 * seconds
    assert command.patience(Limits(notebook_seconds=5_000.0)) > 50_000


def test_two_graders_do_not_mix(class_folder, capsys):
    (class_folder / "a.ipynb").touch()
    results = class_folder.parent / "results"
    with Claim(results):
        with pytest.raises(SystemExit) as refusal:
            run(class_folder)
        said = capsys.readouterr().err
        assert refusal.value.code == 2
        assert f"another grader is at work on {results}, process {os.getpid()}: wait" in said
        assert sorted(path.name for path in results.iterdir()) == [".claim"]
        assert run(class_folder, "--results", str(class_folder.parent / "elsewhere")) == 0
    assert run(class_folder) == 0


def test_a_claim_ends_with_its_process_and_the_next_one_tidies_up(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from lessons_grading.results_lock import Claim\n"
        "scratch = Claim(Path(sys.argv[1]))._scratch\n"
        "Path(scratch, 'left').touch(); print(scratch, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "results")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    left = Path(done.stdout.strip())
    assert left.is_dir() and done.returncode == -9
    for name in ("results/.12.partial", "results/students/.12.partial"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with Claim(tmp_path / "results") as scratch:
        assert not left.exists() and scratch.is_dir()
        assert sorted(path.name for path in (tmp_path / "results").rglob("*")) == [
            ".claim",
            "students",
        ]
    assert not scratch.exists()


def test_the_temporary_files_of_graders_are_in_the_claimed_folder(class_folder):
    (class_folder / "a.ipynb").touch()
    ((_, grade),) = grade_all(
        find_submissions(class_folder), where_files_go, 1, scratch=class_folder.parent
    )
    assert grade.events == (str(class_folder.parent),)


def where_files_go(path, student, progress):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return SubmissionGrade(
            student, path.name, digest_of(b""), None, (), (os.path.dirname(folder),), 0.1
        )


@pytest.mark.parametrize("fails_at", ["students", "results"])
def test_a_full_disk_is_a_sentence_and_the_next_run_goes_on(
    class_folder, monkeypatch, capsys, fails_at
):
    for name in "ab":
        (class_folder / f"{name}.ipynb").touch()
    replace = os.replace

    def full(source, target):
        is_first = Path(target).name in ("seed", "submissions")  # before anything is graded
        if Path(target).parent.name == fails_at and not is_first:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(digests.os, "replace", full)
        assert run(class_folder) == 1
    said = capsys.readouterr().err
    assert (
        "Stopped: [Errno 28] No space left on device." in said
        and "the same command goes on from here" in said
    )
    assert not list((class_folder.parent / "results").rglob("*.partial"))
    graded = len(called(class_folder))
    assert run(class_folder) == 0
    assert len(called(class_folder)) == graded


def test_a_scheduler_needs_dask_and_workers_with_a_sandbox(class_folder, monkeypatch, capsys):
    (class_folder / "a.ipynb").touch()
    monkeypatch.setitem(sys.modules, "distributed", None)  # as if it were not installed
    for words, sentence in (
        ([], "--scheduler needs Dask: install the course with its extra `cluster`"),
        (["--no-sandbox"], "--scheduler and --no-sandbox do not go together"),
    ):
        with pytest.raises(SystemExit) as refusal:
            command.main([str(class_folder), "--scheduler", "tcp://here:8786", *words])
        assert refusal.value.code == 2 and sentence in capsys.readouterr().err
    assert run(class_folder) == 0


def test_nothing_of_dask_is_imported_without_a_scheduler():
    script = "import sys, lessons_grading.command; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
