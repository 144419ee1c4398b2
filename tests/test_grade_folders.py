"""Bad folders and files: one line of the report each, and no other student loses a grade."""

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from graded import RIGHT
from graded import hand_in as hand_in_cells
from lessons_grading import command, notebook, submissions
from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import grade_notebook
from lessons_grading.notebook import Unreadable, digest_of, read_file, read_notebook
from lessons_grading.store import GradeStore
from lessons_grading.submissions import Submission, find_submissions, text_of
from test_grade_classroom import ALL_RIGHT, run


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


def test_a_folder_just_deep_enough_is_looked_into(class_folder, monkeypatch):
    monkeypatch.setattr(submissions, "DEEPEST", 3)
    (class_folder / "ada/1/2/3").mkdir(parents=True)
    (class_folder / "ada/1/2/00.ipynb").touch()
    (class_folder / "ada/1/2/3/02.ipynb").touch()
    first, problem = find_submissions(class_folder)
    assert (
        first.path == class_folder / "ada/1/2/00.ipynb"
        and "more than 3 deep" in problem.problem
    )
    (class_folder / "ada/1/2/3/02.ipynb").unlink()
    (class_folder / "ada/1/2/3").rmdir()
    assert [each.problem for each in find_submissions(class_folder)] == [""]


def test_a_folder_that_cannot_be_read_is_one_line(class_folder, monkeypatch):
    for name in ("ada/00.ipynb", "ada/closed/02.ipynb", "bob/00.ipynb"):
        (class_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (class_folder / name).touch()
    scandir = os.scandir

    def refuse(path):  # root can read any folder, whatever its mode
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [
        (each.student, each.path.name, each.problem) for each in find_submissions(class_folder)
    ] == [
        ("ada", "00.ipynb", ""),
        ("ada", "ada", "a folder cannot be read: Permission denied"),
        ("bob", "00.ipynb", ""),
    ]


def test_links_to_folders_are_not_followed_wherever_they_are(class_folder):
    for student in ("ada", "bob", "eve"):
        (class_folder / student).mkdir()
    (class_folder / "ada/00.ipynb").touch()
    (class_folder / "eve/hers").symlink_to("../ada")
    (class_folder / "ada/round").symlink_to("..")
    (class_folder / "bob/circle").symlink_to("circle")
    (class_folder / "circle").symlink_to("circle")
    (class_folder / "link").symlink_to("ada")
    (class_folder / "link.ipynb").symlink_to("ada")
    assert [
        (each.student, each.path.name, each.problem) for each in find_submissions(class_folder)
    ] == [
        ("ada", "00.ipynb", ""),
        ("bob", "bob", "there is no notebook in this folder"),
        (
            "eve",
            "eve",
            "there is no notebook in this folder, and links to folders are not followed",
        ),
        ("link", "link", "links to folders are not followed"),
        ("link.ipynb", "link.ipynb", "links to folders are not followed"),
    ]


def test_a_folder_named_like_a_notebook_is_a_folder(class_folder):
    (class_folder / "ada/02.ipynb").mkdir(parents=True)
    (class_folder / "ada/02.ipynb/02.ipynb").touch()
    (only,) = find_submissions(class_folder)
    assert only.path == class_folder / "ada/02.ipynb/02.ipynb"


def test_one_student_cannot_hand_in_without_end(class_folder, monkeypatch):
    monkeypatch.setattr(submissions, "MOST_NOTEBOOKS", 3)
    (class_folder / "eve/deeper").mkdir(parents=True)
    for name in ("a", "b", "deeper/c"):
        (class_folder / f"eve/{name}.ipynb").touch()
    assert [each.problem for each in find_submissions(class_folder)] == ["", "", ""]
    (class_folder / "eve/deeper/d.ipynb").touch()
    assert [(each.path.stem, each.problem) for each in find_submissions(class_folder)] == [
        ("a", ""),
        ("b", ""),
        ("c", ""),
        ("eve", "there are 4 notebooks, of which 3 are graded"),
    ]
    monkeypatch.setattr(submissions, "MOST_ENTRIES", 5)
    assert (
        find_submissions(class_folder)[-1].problem
        == "there are 4 notebooks, of which 3 are graded"
    )
    monkeypatch.setattr(submissions, "MOST_ENTRIES", 4)
    assert (
        find_submissions(class_folder)[-1].problem
        == "there are more than 4 files: not all were looked at"
    )


@pytest.mark.parametrize(
    "name, text",
    [
        (b"Jos\xe9", r"Jos\xe9"),
        ("Zoë Müller 李", "Zoë Müller 李"),
        ("a\r=1+1\n", r"a\r=1+1\n"),
        ("a\u2028b\x1b[2J", r"a\u2028b\x1b[2J"),
        ("\u202egnp", r"\u202egnp"),
        ("نیم\u200cفاصله", "نیم\u200cفاصله"),
    ],
)
def test_a_name_becomes_a_line_that_can_be_written(name, text):
    assert text_of(os.fsdecode(name)) == text == text_of(text)


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


def test_a_file_that_is_replaced_before_it_is_opened_is_no_trap(tmp_path, monkeypatch):
    path, opened = tmp_path / "ada.ipynb", os.open
    path.write_text("good")

    def swap(file, flags, *rest, **named):
        if Path(file) == path and not path.is_fifo():
            path.unlink()
            os.mkfifo(path)
        return opened(file, flags, *rest, **named)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(Unreadable, match="this is not a file"):
        read_file(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("longer than before"),
        lambda path: path.write_text("g"),
        lambda path: os.utime(path, ns=(1, 1)),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_read_another_time(
    tmp_path, monkeypatch, change
):
    path = tmp_path / "00.ipynb"
    seen = []
    fstat = os.fstat
    path.write_text("good")

    def look(descriptor):
        seen.append(descriptor)
        if seen.count(descriptor) == 2:
            change(path)
        return fstat(descriptor)

    monkeypatch.setattr(notebook.os, "fstat", lambda descriptor: look(descriptor))
    with pytest.raises(Unreadable, match="this file changed while it was read"):
        # Only `_expect_file` and the two looks around the reading come here.
        read_file(path)


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


@pytest.mark.parametrize(
    "text",
    [
        (
            '{"cells": [{"source": "x = {\\"outputs\\": [1]}", "outputs": [{"a": '
            '"]"}], "id": "\\\\"}]}'
        ),
        '{"outputs": [{"outputs": []}], "cells": [], "x": "\\"outputs\\": ["}',
        '{"a": "outputs", "b": [1], "attachments" : {}}',
        '{"outputs": null, "widgets": "["}',
    ],
)
def test_only_outputs_and_the_like_are_left_out(text):
    def without(value):
        if isinstance(value, dict):
            return {
                name: (
                    None
                    if name in ("outputs", "attachments", "widgets")
                    and isinstance(part, list | dict)
                    else without(part)
                )
                for name, part in value.items()
            }
        return [without(part) for part in value] if isinstance(value, list) else value

    assert json.loads(notebook._without_bulk(text.encode())) == without(json.loads(text))


@pytest.mark.parametrize("data", [b'{"outputs": [', b'{"outputs": ["', b'{"outputs": ["\\'])
def test_outputs_without_an_end_are_no_notebook(data):
    assert notebook._without_bulk(data) == b'{"outputs": null'


def test_a_notebook_of_much_code_is_refused_for_good(tmp_path):
    path = hand_in_cells(tmp_path, "#" * (11 << 20))
    read = read_notebook(path)
    assert (
        read.problem == "this notebook has 11 MB without its outputs, and may have 10"
        and read.digest
    )


@pytest.mark.parametrize("limit", ["LARGEST_CODE", "LARGEST_FILE"])
def test_what_is_just_small_enough_is_read(tmp_path, monkeypatch, limit):
    path = hand_in_cells(tmp_path, RIGHT)
    size = (
        len(notebook._without_bulk(path.read_bytes()))
        if limit == "LARGEST_CODE"
        else path.stat().st_size
    )
    for largest, is_read in ((size, True), (size - 1, False)):
        monkeypatch.setattr(notebook, limit, largest)
        assert (read_notebook(path).problem == "") == is_read


@pytest.mark.parametrize(
    "name, lesson",
    [("20240112.ipynb", None), ("20240112_07.ipynb", "07"), ("0", None), ("071", None)],
)
def test_a_date_is_no_lesson(tmp_path, name, lesson):
    assert read_notebook(hand_in_cells(tmp_path, "x = 1", name=name)).lesson == lesson


@pytest.mark.parametrize("number", ["9" * 5_000, "100", "002"])
def test_a_number_of_many_digits_is_no_lesson(tmp_path, number):
    path = hand_in_cells(tmp_path, f'check("{number}.1", x)', name="a.ipynb")
    content = json.loads(path.read_text())
    content["cells"][0] |= {
        "metadata": {"exercise": f"{number}.1", "nbgrader": {"grade_id": f"check-{number}-1"}},
        "id": f"exercise-{number}-1",
    }
    path.write_text(json.dumps(content))
    assert read_notebook(path).lesson is None
