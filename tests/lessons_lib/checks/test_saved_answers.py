"""What is saved of a learner's answers and comes back, and which answers are not the
learner's.
"""

import sys
import threading
import types

import pytest

import added_method
from lessons_lib.checks import progress, saved_answers, solution_cells
from lessons_lib.checks.saved_answers import NoSavedAnswer
from lessons_lib.paths import SOLUTIONS
from paged_attention.pool.kv_cache import PagedAttentionManager


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


def test_an_answer_brings_the_methods_that_it_calls_and_leaves_none_on_the_class():
    notebook = {"__name__": "__main__"}
    exec(added_method.CELL, notebook)
    saved_answers.save("2.7", notebook["free_sequence"])

    class Manager(PagedAttentionManager):
        free_sequence = saved_answers.load("2.7").answer

    manager = Manager(2, 2, 1, 1, max_num_seqs=1, max_blocks_per_seq=2)
    manager.add_sequence(0, 3)
    manager.free_sequence(0)
    assert manager.block_manager.get_num_free_blocks() == 2
    assert not hasattr(Manager, "give_back")


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


def test_a_solution_notebook_reads_and_writes_nothing_of_the_learners(folder, monkeypatch):
    saved_answers.save("8.3", "text")
    monkeypatch.chdir(SOLUTIONS)
    with pytest.raises(NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.3")
    saved_answers.save("8.2", "text")
    assert saved_answers.load("8.2").answer == "text"
    monkeypatch.chdir(folder.parent)
    assert [path.name for path in folder.iterdir()] == ["8.3"]
    with pytest.raises(NoSavedAnswer, match="not passed yet"):
        saved_answers.load("8.2")


UNREADABLE, CHANGED = "its file cannot be read", "its file has changed since it was saved"
PYTHON = saved_answers.PYTHON
# What is then in the file, made of its first line and of what comes after it.
SPOILT = {
    "empty": (lambda header, payload: b"", UNREADABLE),
    "truncated": (lambda header, payload: header + payload[:-9], CHANGED),
    "header only": (lambda header, payload: header[:20], UNREADABLE),
    "no text": (lambda header, payload: b"\xff\xfe" + header + payload, UNREADABLE),
    "no header": (lambda header, payload: b"[1, 2]\n" + payload, UNREADABLE),
    "edited": (lambda header, payload: header + payload[::-1], CHANGED),
    "another Python": (
        lambda header, payload: header.replace(f'"{PYTHON}"'.encode(), b'"2.7"') + payload,
        f"saved with Python 2.7, and this is Python {PYTHON}",
    ),
    "of another exercise": (
        lambda header, payload: header.replace(b"8.3", b"8.4") + payload,
        "its file holds an answer to exercise 8.4",
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoiled_file_is_no_answer(folder, how):
    saved_answers.save("8.3", len)
    header, payload = (folder / "8.3").read_bytes().split(b"\n", 1)
    spoil, words = SPOILT[how]
    (folder / "8.3").write_bytes(spoil(header + b"\n", payload))
    with pytest.raises(NoSavedAnswer) as refusal:
        saved_answers.load("8.3")
    assert str(refusal.value).startswith(words) and "\n" not in str(refusal.value)


def test_a_folder_in_its_place_is_no_answer(folder):
    (folder / "8.3").mkdir(parents=True)
    with pytest.raises(NoSavedAnswer, match=UNREADABLE):
        saved_answers.load("8.3")


class Bomb:
    """An object that is saved and cannot be loaded."""

    def __reduce__(self):
        return int, ("no\nnumber",)


class Leaves:
    """Ends the process that saves or loads it."""

    def __init__(self, at_once):
        self.at_once = at_once

    def __reduce__(self):
        if self.at_once:
            raise SystemExit
        return sys.exit, ("out of here",)


@pytest.mark.parametrize(
    "answer, words",
    [
        (Leaves(at_once=True), "not passed yet"),
        (Leaves(at_once=False), r"it cannot be loaded \(SystemExit: out of here\)$"),
        (Bomb(), r"it cannot be loaded \(ValueError: invalid literal.*\)$"),
    ],
)
def test_an_answer_that_raises_or_exits_while_it_is_saved_or_loaded_is_none(answer, words):
    saved_answers.save("8.3", answer)
    with pytest.raises(NoSavedAnswer, match=words):
        saved_answers.load("8.3")


OURS = "def f(x):\n    # BEGIN SOLUTION\n    return x"
THEIRS = "def f(x):\n    return x"
USES_IT = "def ff(x):\n    # BEGIN SOLUTION\n    return f(x)"


@pytest.mark.parametrize(
    "cells, name, ours",
    [
        (["", OURS], "f", True),
        (["f = r'''\n// BEGIN SOLUTION\n'''"], "f", True),
        (["class F:\n    # BEGIN SOLUTION\n    pass"], "F", True),
        ([OURS, THEIRS], "f", False),
        ([THEIRS, OURS], "f", True),
        ([USES_IT, THEIRS], "f", False),
        ([THEIRS, f"{USES_IT}\nx.f = f\n    f = 3"], "f", False),
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

    def write(text: bytes):
        path = tmp_path / "script.py"
        path.write_bytes(text)
        main = types.ModuleType("__main__")
        main.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", main)
        return main

    return write


@pytest.mark.parametrize(
    "text, ours",
    [
        ("def f(x):\n    # BEGIN SOLUTION é\n    return x\n", True),
        ("def f(x):\n    # é\n    return x\n", False),
        ("g = 1  # BEGIN SOLUTION", False),
        (b"f = 1  # BEGIN SOLUTION \xff", False),  # no text
    ],
)
def test_the_whole_text_of_a_script_counts_in_any_locale(script, plain_locale, text, ours):
    main = script(text if isinstance(text, bytes) else text.encode())
    assert solution_cells.define("f") == ours
    main.In = 3  # a variable of its own, and no cells
    assert solution_cells.define("f") == ours


@pytest.mark.parametrize("file", [None, "no such file.py", "\0", "."])
def test_where_there_are_neither_cells_nor_a_script_no_answer_is_ours(script, file):
    main = script(b"f = 1  # BEGIN SOLUTION")
    main.__file__ = file
    assert not solution_cells.define("f")
    del main.__file__
    assert not solution_cells.define("f")
