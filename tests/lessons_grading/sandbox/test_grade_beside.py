"""Files in Python that a student hands in beside a notebook are there when it is graded."""

import os
import sys
from dataclasses import replace

import pytest

from graded import grade as graded
from graded import hand_in
from lessons_grading.notebook import MOST_BESIDE, Cell, read_notebook
from lessons_grading.sandbox import Limits, missing
from lessons_lib import check

HELPERS = "import more\n\n\ndef divide_up(a, b):\n    return more.negated(-a // b)\n"
MORE = "import threading\n\nSIGN = '−'\n\n\ndef negated(value):\n    return -value\n"
CHECK = "from lessons_lib import check\ncheck('0.1', blocks_needed)"
ANSWERS = {
    "at the top": "from helpers import divide_up\n"
    "def blocks_needed(num_tokens, block_size):\n    return divide_up(num_tokens, block_size)",
    "inside": "def blocks_needed(num_tokens, block_size):\n    import helpers\n"
    "    return helpers.divide_up(num_tokens, block_size)",
    "as the answer": "from helpers import divide_up as blocks_needed",
}


@pytest.fixture
def anna(tmp_path):
    """A student's folder with two files beside the notebook."""
    folder = tmp_path / "anna"
    folder.mkdir()
    (folder / "helpers.py").write_text(HELPERS, encoding="utf-8")
    (folder / "more.py").write_text(MORE, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("how", ANSWERS)
def test_an_answer_may_use_what_is_handed_in_beside_its_notebook(anna, how):
    limits = replace(Limits(), sandboxed=missing() is None)
    path = hand_in(anna, ANSWERS[how], CHECK)
    grade = graded(path, limits, "anna")
    assert [(each.passed, each.message) for each in grade.exercises] == [(True, "")]
    for file in anna.glob("*.py"):
        file.unlink()
    without = graded(path, limits, "anna")
    assert not without.exercises[0].passed and without.digest != grade.digest
    assert any("No module named 'helpers'" in event for event in without.events) or (
        "No module named 'helpers'" in without.exercises[0].message
    )


@pytest.mark.usefixtures("own_modules")
def test_the_check_says_what_has_to_be_handed_in_with_the_notebook(anna, monkeypatch, capsys):
    namespace = {}
    exec(ANSWERS["at the top"], namespace)
    check("0.1", namespace["blocks_needed"])
    told = capsys.readouterr().out
    assert "passed" in told and "hand helpers.py and more.py in with it" in told
    monkeypatch.chdir(anna.parent)
    check("0.1", lambda num_tokens, block_size: -(-num_tokens // block_size))
    told = capsys.readouterr().out
    assert "passed" in told and "hand" not in told


@pytest.fixture
def own_modules(anna, monkeypatch):
    """This process works in the student's folder, as a notebook's kernel does."""
    monkeypatch.chdir(anna)
    monkeypatch.syspath_prepend("")
    yield
    for name in ("helpers", "more"):
        sys.modules.pop(name, None)


def files_beside(path, student):
    return [*read_notebook(path, student).files]


def test_files_are_read_with_the_notebook_of_a_student(anna):
    path = hand_in(anna, CHECK)
    assert read_notebook(path, "anna").files == {"helpers.py": HELPERS, "more.py": MORE}
    assert read_notebook(path).files == {}
    assert read_notebook(path, "anna").cells == (Cell(1, CHECK),)


def test_what_is_in_the_folder_of_a_class_is_nobodys(anna):
    """There are notebooks of several students, and perhaps the teacher's own files."""
    path = hand_in(anna, CHECK, name="ben.ipynb")
    assert files_beside(path, "ben") == []
    assert len(files_beside(hand_in(anna, CHECK, name="anna.ipynb"), "anna")) == 2


def test_only_small_plain_text_with_a_modules_name_is_taken(anna, tmp_path):
    (tmp_path / "secret.py").write_text("the teacher's")
    (anna / "link.py").symlink_to(tmp_path / "secret.py")
    (anna / "folder.py").mkdir()
    os.mkfifo(anna / "pipe.py")
    (anna / "latin.py").write_bytes(b"# \xe9")
    (anna / "two words.py").write_text("")
    for name in ("large", "larger"):  # the two are too much
        (anna / f"{name}.py").write_text("#" * 700_000)
    (anna / "data.txt").write_text("")
    assert files_beside(hand_in(anna, CHECK), "anna") == [
        "helpers.py",
        "large.py",
        "more.py",
    ]


def test_a_folder_of_a_thousand_files_is_not_taken_whole(anna):
    for number in range(1_000):
        (anna / f"m{number:03}.py").touch()
    assert len(files_beside(hand_in(anna, CHECK), "anna")) == MOST_BESIDE


def test_a_changed_file_beside_it_is_another_submission(anna):
    path = hand_in(anna, CHECK)
    before = read_notebook(path, "anna").digest
    (anna / "helpers.py").write_text("")
    assert read_notebook(path, "anna").digest != before
