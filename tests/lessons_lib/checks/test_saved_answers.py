"""What is saved of a learner's answers and comes back, and which answers are not the
learner's.
"""

import sys
import threading
import types
from pathlib import Path

import pytest

from lessons_lib import progress, saved_answers, solution_cells
from lessons_lib.paths import SOLUTIONS
from lessons_lib.saved_answers import NoSavedAnswer


@pytest.fixture(autouse=True)
def folder(learner):
    """The folder of their answers."""
    return learner / "parts"


def test_texts_and_classes_come_back_and_the_latest_pass_counts(folder):
    text = "// ß\r\nclass FreeList;\n\n"
    saved_answers.save("1.1", "class Old;")
    saved_answers.save("1.1", text)
    assert saved_answers.load("1.1").answer == text
    assert text.encode() in (folder / "1.1").read_bytes()  # to be read by people
    saved_answers.save(
        "3.2", type("SoftmaxState", (), {"__module__": "__main__", "three": lambda self: 3})
    )
    assert saved_answers.load("3.2").answer().three() == 3
    assert sorted(path.name for path in folder.iterdir()) == ["1.1", "3.2"]


class Bomb:
    """An object that is saved and cannot be loaded."""

    def __reduce__(self):
        return int, ("no\nnumber",)


def spoil(path, how):
    data = path.read_bytes()
    header, payload = data.split(b"\n", 1)
    python, other = saved_answers.PYTHON.encode(), b"2.7"
    {
        "gone": path.unlink,
        "empty": lambda: path.write_bytes(b""),
        "truncated": lambda: path.write_bytes(data[:-9]),
        "header only": lambda: path.write_bytes(header[:20]),
        "no text": lambda: path.write_bytes(b"\xff\xfe" + data),
        "no header": lambda: path.write_bytes(b"[1, 2]\n" + payload),
        "edited": lambda: path.write_bytes(header + b"\n" + payload[::-1]),
        "another Python": lambda: path.write_bytes(
            header.replace(b'"%s"' % python, b'"%s"' % other) + b"\n" + payload
        ),
        "a folder": lambda: (path.unlink(), path.mkdir()),
        "of another exercise": lambda: path.write_bytes(
            header.replace(b"8.3", b"8.4") + b"\n" + payload
        ),
        "explodes": lambda: saved_answers.save("8.3", Bomb()),
    }[how]()


@pytest.mark.parametrize(
    "how, words",
    [
        ("gone", "not passed yet"),
        ("empty", "its file cannot be read"),
        ("truncated", "its file has changed since it was saved"),
        ("header only", "its file cannot be read"),
        ("no text", "its file cannot be read"),
        ("no header", "its file cannot be read"),
        ("edited", "its file has changed since it was saved"),
        (
            "another Python",
            f"saved with Python 2.7, and this is Python {saved_answers.PYTHON}",
        ),
        ("a folder", "its file cannot be read"),
        ("of another exercise", "its file holds an answer to exercise 8.4"),
        ("explodes", "it cannot be loaded (ValueError: invalid literal"),
    ],
)
def test_a_spoiled_file_is_no_answer(folder, how, words):
    saved_answers.save("8.3", len)
    spoil(folder / "8.3", how)
    with pytest.raises(NoSavedAnswer) as refusal:
        saved_answers.load("8.3")
    assert str(refusal.value).startswith(words) and "\n" not in str(refusal.value)


def test_what_cannot_be_saved_breaks_nothing(folder):
    saved_answers.save("8.3", threading.Lock())
    saved_answers.save("1.1", "\ud800")
    with pytest.raises(NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.3")
    progress.remember("8.3", True, None)
    with pytest.raises(NoSavedAnswer, match="passed, but not saved: run its check once more"):
        saved_answers.load("8.3")

    (folder / "1.2").mkdir(parents=True)
    saved_answers.save("1.2", len)  # its place is taken
    assert [path.name for path in folder.iterdir()] == ["1.2"]
    (folder / "1.2").rmdir()
    folder.rmdir()  # nothing is left in it
    folder.write_text("a file where the folder should be")
    saved_answers.save("8.3", len)


def test_a_solution_notebook_writes_nothing(folder, monkeypatch):
    monkeypatch.chdir(SOLUTIONS)
    saved_answers.save("8.2", "text")
    assert saved_answers.load("8.2").answer == "text" and not folder.exists()
    monkeypatch.chdir(folder.parent)
    with pytest.raises(NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.2")


class Leaves:
    """Ends the process that saves or loads it."""

    def __init__(self, at_once):
        self.at_once = at_once

    def __reduce__(self):
        if self.at_once:
            raise SystemExit
        return sys.exit, ("out of here",)


def test_an_answer_that_exits_while_it_is_saved_or_loaded_breaks_nothing():
    saved_answers.save("8.3", Leaves(at_once=True))
    with pytest.raises(saved_answers.NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.3")
    saved_answers.save("8.3", Leaves(at_once=False))
    with pytest.raises(
        saved_answers.NoSavedAnswer, match=r"it cannot be loaded \(SystemExit: out of here\)"
    ):
        saved_answers.load("8.3")


@pytest.mark.parametrize(
    "cells, name, ours",
    [
        (["", "def f(x):\n    # BEGIN SOLUTION\n    return x"], "f", True),
        (["f = r'''\n// BEGIN SOLUTION\n'''"], "f", True),
        (["class F:\n    # BEGIN SOLUTION\n    pass"], "F", True),
        # the learner's own, later
        (
            ["def f(x):\n    # BEGIN SOLUTION\n    return x", "def f(x):\n    return x"],
            "f",
            False,
        ),
        (
            ["def f(x):\n    return x", "def f(x):\n    # BEGIN SOLUTION\n    return x"],
            "f",
            True,
        ),
        (
            ["def g(x):\n    # BEGIN SOLUTION\n    return f(x)", "def f(x):\n    return x"],
            "f",
            False,
        ),
        (
            [
                "def f(x):\n    return x",
                "def ff(x):\n    # BEGIN SOLUTION\n    return f(x)\nx.f = f\n    f = 3",
            ],
            "f",
            False,
        ),
        ([], "f", False),
    ],
)
def test_an_answer_is_ours_if_the_cell_that_defined_it_last_has_our_marks(
    monkeypatch, cells, name, ours
):
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)
    assert solution_cells.define(name) == ours


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Makes `__main__` a script with this text; it has no cells."""

    def write(text: str):
        path = tmp_path / "script.py"
        path.write_bytes(text.encode())
        main = types.ModuleType("__main__")
        main.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", main)
        return main

    return write


@pytest.mark.parametrize("mark, ours", [("# BEGIN SOLUTION é\n", True), ("# é\n", False)])
def test_the_whole_text_of_a_script_counts_in_any_locale(script, plain_locale, mark, ours):
    script(f"def f(x):\n    {mark}    return x\n")
    assert solution_cells.define("f") == ours and not solution_cells.define("g")


def test_a_script_that_has_a_variable_of_the_cells_name_is_a_script(script):
    script("f = 1  # BEGIN SOLUTION").In = 3
    assert solution_cells.define("f")


@pytest.mark.parametrize("file", [None, "no such file.py", "\0", "."])
def test_where_there_are_neither_cells_nor_a_script_no_answer_is_ours(script, file):
    main = script("f = 1  # BEGIN SOLUTION")
    main.__file__ = file
    assert not solution_cells.define("f")
    del main.__file__
    assert not solution_cells.define("f")


def test_a_script_that_is_no_text_has_no_answer_of_ours(script):
    Path(script("").__file__).write_bytes(b"f = 1  # BEGIN SOLUTION \xff")
    assert not solution_cells.define("f")


def test_only_the_folder_of_solutions_is_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not solution_cells.are_at_home()
    monkeypatch.chdir(SOLUTIONS)
    assert solution_cells.are_at_home()


def test_in_the_folder_of_solutions_the_learners_own_answers_are_not_there(monkeypatch):
    saved_answers.save("8.3", "text")
    monkeypatch.chdir(SOLUTIONS)
    with pytest.raises(NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.3")
