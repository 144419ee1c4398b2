"""Clocks that are off by years: on workers, on the scheduler, on the command's machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_grade_cluster_commands import outcomes

import dask_command
from dask_class import dask, needs_sandbox, on_a_cluster, students  # noqa: F401
from lessons_lib.paths import ROOT

pytestmark = on_a_cluster
SUPPORT = ROOT / "tests/support"
CLOCKS = [str(SUPPORT / "clocks"), str(SUPPORT), *sys.path]
DAY = 86_400


def clock_that_is_off(file: Path, days: float) -> dict[str, str]:
    """The environment of processes with this clock. Their path is CLOCKS."""
    file.write_text(str(days * DAY))
    return {"CLOCK": str(file)}


@pytest.mark.parametrize("days", [-4_000, 4_000])
def test_a_process_has_the_clock_that_it_is_given(tmp_path, days):
    """Otherwise the tests below would try nothing."""
    clock = clock_that_is_off(tmp_path / "clock", days)
    said = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(CLOCKS)} | clock,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # a file's date is the machine's, and tells what the right time is to the day
    right = (tmp_path / "clock").stat().st_mtime
    assert abs(float(said) - right - days * DAY) < DAY


def test_workers_whose_clocks_are_years_off_grade_as_ever(dask, students, tmp_path):
    for number in range(6):
        students.hand_in(f"s{number}")
    for name, days in (("early", -4_000), ("late", 4_000)):
        clock = clock_that_is_off(tmp_path / f"{name}.clock", days)
        dask.start_worker(name, path=CLOCKS, **clock)
    grades = students.grade(dask)
    assert all(grade.is_final and grade.events == ("seed 3",) for grade in grades.values())
    assert all(students.tried(name) == 1 for name in grades) and len(grades) == 6


@pytest.mark.slow
@needs_sandbox
def test_the_next_command_finds_all_grades_whatever_the_date(dask, students, tmp_path):
    students.hand_in("ada")
    dask.kill("scheduler")
    late = clock_that_is_off(tmp_path / "late.clock", 4_000)
    dask.start_scheduler(path=CLOCKS, **late)
    dask.start_worker("only")
    words = students.folder, dask.address, "--seed", "3"
    first = dask_command.begin(*words, path=CLOCKS, **late)
    said, _ = first.communicate()
    assert first.returncode == 0 and "Graded: 1, 0 of them in an earlier run." in said, said

    early = clock_that_is_off(tmp_path / "early.clock", -4_000)
    students.hand_in("bob")
    second = dask_command.begin(*words, path=CLOCKS, **early)
    said, _ = second.communicate()
    assert second.returncode == 0 and "Graded: 2, 1 of them in an earlier run." in said, said
    assert outcomes(tmp_path / "results") == dict.fromkeys(["ada", "bob"], (True, ["seed 3"]))
    assert [students.tried(name) for name in ("ada", "bob")] == [1, 1]
