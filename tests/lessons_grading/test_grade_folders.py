"""Bad folders and files: one line of the report each, and no other student loses a grade."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fake_grader import GRADER
from graded import grade as graded
from lessons_grading import command
from lessons_grading.submissions import find_submissions


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
    assert command.main([str(class_folder), "--no-sandbox"], grader=GRADER) == 0
    results = json.loads((class_folder.parent / "results/results.json").read_text())
    assert [
        (each["student"], len(each["exercises"]), each["events"])
        for each in results["submissions"]
    ] == [
        ("ada", 1, ["this is not a notebook: it is empty"]),
        ("eve", 0, [found[2].problem]),
        ("eve", 1, ["this is not a notebook: it is empty"]),
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
def test_what_is_no_plain_file_is_not_read_and_has_no_final_grade(tmp_path, make, problem):
    path = tmp_path / "ada_00.ipynb"
    try:
        make(path)
    except PermissionError:
        pytest.skip("only root can make devices")
    grade = graded(path)
    assert (grade.is_final, grade.exercises, grade.events) == (False, (), (problem,))
