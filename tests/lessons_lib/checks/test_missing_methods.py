"""A class whose methods come in later cells: when one is missing, its cell is named."""

import json

import pytest
from IPython.core.interactiveshell import InteractiveShell

from lessons_command import kernel
from lessons_guide import restart
from lessons_lib.paths import NOTEBOOKS

POOL = "class Pool:\n    size = 0"
GROW = "def grow(self):\n    self.size += 1\n\n\nPool.grow = grow"
SHRINK = "def shrink(self):\n    self.size -= 1\n\n\nPool.shrink = shrink"
MAKE = "pool = Pool()"
USE = "pool.grow()\npool.shrink()"
CELLS = [
    ("code", "draw = open_lesson('01')"),
    ("markdown", "## The pool"),
    ("code", POOL),
    ("markdown", "### Exercise 1.1: grow"),
    ("code", GROW),
    ("code", "draw.pool(Pool)"),
    ("markdown", "### Exercise 1.2: shrink"),
    ("code", SHRINK),
    ("code", MAKE),
    ("code", USE),
]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs cells of a lesson, and gives what the last one shows."""
    cells = [{"cell_type": kind, "source": [text]} for kind, text in CELLS]
    (tmp_path / "01_topic.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(restart, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(restart, "lesson_of_this_kernel", lambda: "01")
    restart._cells.cache_clear()
    shell = InteractiveShell()
    kernel.load_ipython_extension(shell)

    def run(*texts):
        for text in texts:
            shell.user_ns["In"].append(text)  # as a kernel does
            capsys.readouterr()
            shell.run_cell(text)
        return capsys.readouterr().out

    yield run
    restart._cells.cache_clear()


def test_a_class_that_has_run_again_has_lost_its_methods(run):
    out = run(POOL, GROW, SHRINK, POOL, MAKE, USE)
    assert (
        "› `grow` comes from a cell that has not run, or not since the cell of `class" in out
    )
    card = out.split("› ")[1]
    assert "Run these 2 cells, in this order" in card and restart.IN_THE_MENU in card
    assert card.index("`def grow(self):` below “Exercise 1.1") < card.index("`def shrink(")
    assert run(GROW, SHRINK, USE) == ""


@pytest.mark.parametrize("shrink", ["", SHRINK.rpartition("\n")[0]])
def test_a_cell_that_has_not_run_or_has_lost_its_last_line_is_named(run, shrink):
    """The check of an exercise passes without that line."""
    out = run(POOL, GROW, shrink, MAKE, USE)
    assert "Run this cell, and then" in out and "`def shrink(self):` below “Exerc" in out
    assert "adds it to the class: `Pool.shrink = shrink`. Is it still in your cell?" in out


def test_an_object_of_the_class_as_it_was_is_made_anew(run):
    out = run(POOL, GROW, MAKE, POOL, GROW, SHRINK, USE)
    assert "› This object is older than `class Pool`" in out and "Make the object anew" in out
    assert run(MAKE, USE) == ""


def test_a_misspelt_method_is_named_and_an_unknown_one_is_not(run):
    assert "› There is no `gorw`. Do you mean `grow`?" in run(POOL, GROW, MAKE, "pool.gorw()")
    assert "Do you mean `arange`?" in run("import torch\ntorch.arrange(3)")
    assert "› " not in run("pool.quite_another")


def test_a_picture_of_a_lesson_changes_nothing(run):
    """Each cell with a picture seemed to be needed before the next one."""
    known = {"open_lesson": 1, "Pool": 1}
    card = restart.explain("draw", "draw.all_of_it()", "01", known)
    assert "Run this cell," in card.body and "draw.pool" not in card.body


def test_a_later_picture_of_lesson_02_does_not_need_the_first_one():
    (notebook,) = NOTEBOOKS.glob("02_*.ipynb")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    last = next(cell for cell in cells if "draw.memory_use(" in "".join(cell["source"]))
    needed = restart._needed({"draw"}, restart.cells_above("".join(last["source"]), "02"), {})
    assert [cell.source.split("\n")[0] for cell in needed] == [
        "from lessons_lib import check, hint, open_lesson, solution"
    ]
