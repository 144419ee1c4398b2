"""Bad folders and files: one line of the report each, and no other student loses a grade."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_grade_classroom import ALL_RIGHT, run

from graded import RIGHT
from graded import hand_in as hand_in_cells
from lessons_grading import command, notebook
from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import grade_notebook
from lessons_grading.notebook import Unreadable, digest_of, read_file, read_notebook
from lessons_grading.store import GradeStore
from lessons_grading.submissions import Submission, find_submissions


def nest(folder: Path, name: str, depth: int):
    """Folders inside of each other, which no path can name as a whole."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def class_folder(tmp_path):
    """A folder for submissions, which ends however deep it is."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.parametrize("name, depth", [("d", 1_100), ("n" * 200, 30)])
def test_folders_too_deep_are_one_line_of_the_report(class_folder, name, depth):
    for student in ("ada", "eve"):
        (class_folder / student).mkdir()
        (class_folder / student / "00.ipynb").write_text("")
    nest(class_folder / "eve", name, depth)
    found = find_submissions(class_folder)
    assert [(each.student, each.path.name) for each in found] == [
        ("ada", "00.ipynb"),
        ("eve", "00.ipynb"),
        ("eve", "eve"),
    ]
    assert found[2].problem in (
        "there are folders more than 20 deep, which were not looked into",
        "a folder cannot be read: File name too long",
    )
    assert run(class_folder) == 0
    results = json.loads((class_folder.parent / "results/results.json").read_text())
    assert [
        (each["student"], len(each["exercises"]), each["events"])
        for each in results["submissions"]
    ] == [
        ("ada", 1, []),
        ("eve", 0, [found[2].problem]),
        ("eve", 1, []),
    ]


@pytest.mark.parametrize(
    "make, problem",
    [
        (os.mkfifo, "this is not a file"),
        (lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)), "this is not a file"),
        (
            lambda path: os.symlink("/dev/zero", path),
            "this is a link, and links are not followed",
        ),
        (os.mkdir, "this is not a file"),
        (
            lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2 << 30),
            "this file has 2048 MB, and a notebook may have 100",
        ),
        (lambda path: None, "this file cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_plain_file_is_not_read_and_nothing_is_kept_of_it(tmp_path, make, problem):
    path = tmp_path / "ada_00.ipynb"
    try:
        make(path)
    except PermissionError:
        pytest.skip("only root can make devices")
    with pytest.raises(Unreadable, match=problem):
        read_file(path)
    grade = grade_notebook(path, "ada", 1)
    assert (grade.is_final, grade.exercises, grade.events) == (False, (), (problem,))
    with GradeStore(tmp_path / "grades.sqlite", "", tmp_path) as store:
        assert store.find(Submission("ada", path)) is None


def test_a_file_that_is_away_for_a_moment_has_its_grade_in_the_next_run(class_folder):
    """What it got meanwhile is not kept under the content that it has before and after."""
    path, away = class_folder / "ada.ipynb", class_folder.parent / "away"
    path.write_text("good")
    graded = []
    for is_there in (False, True):

        def grader(path, student, seed=0, limits=None, progress=None, is_there=is_there):
            if not is_there:
                shutil.move(path, away)
            notebook = read_notebook(path)
            if not is_there:
                shutil.move(away, path)
            graded.append(notebook.digest)
            return SubmissionGrade(
                student,
                path.name,
                notebook.digest,
                "00",
                (ALL_RIGHT,),
                (),
                0.1,
                bool(notebook.digest),
            )

        def grade_here(submissions, grade, *rest):
            return ((each, grade(each.path, each.student)) for each in submissions)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "grade_all", grade_here)
            assert command.main([str(class_folder), "--no-sandbox"], grader=grader) == 0
    assert graded == ["", digest_of(b"good")]


def test_outputs_cost_nobody_a_grade(tmp_path, monkeypatch):
    """25 MB of pictures, and lists in lists, which take most room when they are parsed."""
    path = hand_in_cells(tmp_path, RIGHT)
    content = json.loads(path.read_text())
    content["cells"][0]["outputs"] = [
        {"data": {"image/png": "A" * (25 << 20), "text": 'quo"te ] \\" [ }'}},
        [[]] * 100_000,
    ]
    content["cells"][0]["attachments"] = {"a.png": {"image/png": "A" * (5 << 20)}}
    content["metadata"]["widgets"] = {"state": ["}"] * 100_000}
    path.write_text(json.dumps(content))
    read = read_notebook(path)
    assert (read.problem, read.lesson, read.cells[0].source) == ("", "00", RIGHT)
    assert len(notebook._without_bulk(path.read_bytes())) < 1_000
