"""Where a machine cannot build, no submission is called wrong, and no grade is final."""

import csv
import os
import subprocess
import sys

import pytest

from graded import hand_in, needs_sandbox, solution_of
from lessons_lib.paths import ROOT

NAME = "01_block_manager.ipynb"
pytestmark = [
    pytest.mark.slow,
    needs_sandbox,
]


def test_what_cannot_be_built_is_graded_once_there_is_a_compiler(tmp_path):
    student = tmp_path / "class" / "anna"
    student.mkdir(parents=True)
    hand_in(student, solution_of("1.1"), name=NAME)

    def grade(**variables):
        command = [sys.executable, "-P", "-m", "lessons_grading", str(student.parent)]
        subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=True)
        with open(tmp_path / "results" / "results.csv", encoding="utf-8") as table:
            return next(csv.DictReader(table))

    row = grade(CXX="/bin/false")
    assert (row["mistake"], row["points"], row["exercise"]) == ("not-graded", "0", "")
    page = (tmp_path / "results" / "students" / "anna.html").read_text(encoding="utf-8")
    assert "not your answer" in page
    assert "`/bin/false` (CXX names it) does not compile an empty program: unset" in page
    row = grade(CXX="c++")
    assert (row["exercise"], row["passed"]) == ("1.1", "True")
