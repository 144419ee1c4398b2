"""What is found in a folder of submissions, and what is said of the rest."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from lessons_grading import submissions
from lessons_grading.grades import SubmissionGrade
from lessons_grading.submissions import Submission, find_submissions, text_of


@pytest.fixture
def hand_in(tmp_path):
    """Makes files of these names in the folder of the class, and returns it."""

    def hand_in(*names: str) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return hand_in


def found(folder: Path) -> list[tuple[str, str, str]]:
    """The student, the place and the problem of each submission."""
    return [
        (each.student, str(each.path.relative_to(folder)), each.problem)
        for each in find_submissions(folder)
    ]


@pytest.fixture
def backwards(monkeypatch):
    """A file system that lists its folders from the end."""
    scandir = os.scandir

    def listed(folder):
        with scandir(folder) as entries:
            return nullcontext(iter(sorted(entries, key=lambda entry: entry.name)[::-1]))

    monkeypatch.setattr(submissions.os, "scandir", listed)


def test_students_and_their_notebooks_come_by_name_however_they_are_listed(hand_in, backwards):
    folder = hand_in("zoe.ipynb", "ada/b.ipynb", "ada/1/c.ipynb", "ada/a.ipynb", "Bob/x.ipynb")
    assert found(folder) == [
        ("Bob", "Bob/x.ipynb", ""),
        ("ada", "ada/1/c.ipynb", ""),
        ("ada", "ada/a.ipynb", ""),
        ("ada", "ada/b.ipynb", ""),
        ("zoe", "zoe.ipynb", ""),
    ]


def test_only_notebooks_count_and_none_that_a_program_hides(hand_in):
    folder = hand_in(
        *(".hidden.ipynb", "._ada.ipynb", ".git/x.ipynb", "__MACOSX/ada/02.ipynb"),
        *("ada/.ipynb_checkpoints/02-checkpoint.ipynb", "ada/._02.ipynb", "ada/02.IPYNB"),
        *("ada/__MACOSX/02.ipynb", "ada/data.csv", "grades.csv", "zoe.ipynb", "zoe.ipynb.txt"),
    )
    assert found(folder) == [("ada", "ada/02.IPYNB", ""), ("zoe", "zoe.ipynb", "")]


def test_a_folder_without_a_notebook_is_one_line(hand_in):
    problem = "there is no notebook in this folder"
    assert found(hand_in("ada/essay.pdf")) == [("ada", "ada", problem)]


def test_names_are_written_as_text_and_open_the_file(tmp_path):
    (tmp_path / os.fsdecode(b"Jos\xe9.ipynb")).touch()
    (tmp_path / os.fsdecode(b"Zo\xeb")).mkdir()
    zoe, jose = sorted(find_submissions(tmp_path), key=lambda each: not each.problem)
    assert (jose.student, zoe.student) == (r"Jos\xe9", r"Zo\xeb")
    assert jose.path.exists() and zoe.path.is_dir()


@pytest.mark.parametrize("problem, name", [("", "02\\n.ipynb"), ("no notebook", "")])
def test_a_grade_without_points_is_tried_again(problem, name):
    submission = Submission("ada", Path("class/ada/02\n.ipynb"), problem)
    assert submission.without_points("one", "two") == SubmissionGrade(
        "ada", name, "", None, (), ("one", "two"), 0.0, is_final=False
    )


def test_folders_are_looked_into_twenty_deep(hand_in):
    below = "/".join(map(str, range(2, 21)))  # the student's own is the first
    folder = hand_in(f"ada/{below}/02.ipynb")
    assert found(folder) == [("ada", f"ada/{below}/02.ipynb", "")]
    hand_in(f"ada/{below}/21/03.ipynb")
    problem = "there are folders more than 20 deep, which were not looked into"
    assert found(folder) == [("ada", f"ada/{below}/02.ipynb", ""), ("ada", "ada", problem)]


def test_a_student_may_hand_in_a_hundred_notebooks(hand_in):
    folder = hand_in(*(f"eve/{number:03d}.ipynb" for number in range(100)))
    assert [problem for *_, problem in found(folder)] == [""] * 100
    hand_in("eve/100.ipynb")
    problem = "there are 101 notebooks, of which 100 are graded"
    assert found(folder)[99:] == [("eve", "eve/099.ipynb", ""), ("eve", "eve", problem)]


def test_a_student_may_hand_in_500_megabytes(hand_in):
    """Otherwise one file, linked a hundred times, would cost the class minutes to read."""
    folder = hand_in("eve/000.ipynb", "bob/x.ipynb")
    os.truncate(folder / "eve/000.ipynb", 90 << 20)
    for number in range(1, 7):
        os.link(folder / "eve/000.ipynb", folder / f"eve/{number:03d}.ipynb")
    problem = "its notebooks have more than 500 MB: not all are graded"
    assert [each for _, *each in found(folder)] == [
        ["bob/x.ipynb", ""],
        *([f"eve/{number:03d}.ipynb", ""] for number in range(5)),
        ["eve", problem],
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_a_student_may_hand_in_a_hundred_thousand_files(hand_in, monkeypatch, more):
    folder = hand_in("eve/x.csv")
    file = SimpleNamespace(name="x.csv", is_dir=lambda follow_symlinks=True: False)
    scandir = os.scandir

    def many(path):
        files = iter([file] * (100_000 + more))
        return nullcontext(files) if path == folder / "eve" else scandir(path)

    monkeypatch.setattr(submissions.os, "scandir", many)
    problems = [
        "there is no notebook in this folder",
        "there are more than 100000 files: not all were looked at",
    ]
    assert found(folder) == [("eve", "eve", problems[more])]


def test_links_to_folders_are_not_followed_wherever_they_are(tmp_path):
    for student in ("ada", "bob", "eve"):
        (tmp_path / student).mkdir()
    (tmp_path / "ada/00.ipynb").touch()
    (tmp_path / "eve/hers").symlink_to("../ada")
    (tmp_path / "ada/round").symlink_to("..")
    (tmp_path / "bob/circle").symlink_to("circle")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "link").symlink_to("ada")
    (tmp_path / "link.ipynb").symlink_to("ada")
    assert [
        (each.student, each.path.name, each.problem) for each in find_submissions(tmp_path)
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


def test_a_folder_named_like_a_notebook_is_a_folder(tmp_path):
    (tmp_path / "ada/02.ipynb").mkdir(parents=True)
    (tmp_path / "ada/02.ipynb/02.ipynb").touch()
    (only,) = find_submissions(tmp_path)
    assert only.path == tmp_path / "ada/02.ipynb/02.ipynb"


@pytest.mark.parametrize(
    "name, text",
    [
        (b"Jos\xe9", r"Jos\xe9"),
        ("Zoë Müller 李", "Zoë Müller 李"),
        ("a\r=1+1\n", r"a\r=1+1\n"),
        ("a\u2028b\x1b[2J", r"a\u2028b\x1b[2J"),
        ("\u202egnp", r"\u202egnp"),
        ("\u202a\u202b\u202c\u202d", r"\u202a\u202b\u202c\u202d"),
        ("\u2066\u2067\u2068\u2069", r"\u2066\u2067\u2068\u2069"),
        ("نیم\u200cفاصله", "نیم\u200cفاصله"),
    ],
)
def test_a_name_becomes_a_line_that_can_be_written(name, text):
    assert text_of(os.fsdecode(name)) == text == text_of(text)


def test_a_folder_that_cannot_be_read_hides_none_of_the_others(hand_in, monkeypatch):
    folder = hand_in("ada/1/a.ipynb", "ada/2/b.ipynb", "ada/3/c.ipynb", "bob/d.ipynb")
    scandir = os.scandir

    def refuse(path):  # root can read any folder, whatever its mode
        if path.name in ("1", "2"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(folder) == [
        ("ada", "ada/3/c.ipynb", ""),
        ("ada", "ada", "a folder cannot be read: Permission denied"),
        ("bob", "bob/d.ipynb", ""),
    ]


def test_a_class_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        find_submissions(tmp_path / "nowhere")
