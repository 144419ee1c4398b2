"""A class whose methods come in later cells: when one is missing, its cell is named."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from lessons_command import kernel
from lessons_guide import restart

POOL = "class Pool:\n    size = 0"
GROW = "def grow(self):\n    self.size += 1\n\n\nPool.grow = grow"
SHRINK = "def shrink(self):\n    self.size -= 1\n\n\nPool.shrink = shrink"
MAKE = "pool = Pool()"
USE = "pool.grow()\npool.shrink()"
CELLS = [
    "draw = open_lesson('01')",
    "## The pool",
    POOL,
    "### Exercise 1.1: grow",
    GROW,
    "draw.pool(Pool)",
    "### Exercise 1.2: shrink",
    SHRINK,
    MAKE,
    USE,
]


@pytest.fixture
def run(make_lesson, monkeypatch, capsys):
    """Runs cells of a lesson, and gives what the last one shows."""
    make_lesson(*CELLS)
    monkeypatch.setenv("JPY_SESSION_NAME", "01_topic.ipynb")
    shell = InteractiveShell()
    kernel.load_ipython_extension(shell)

    def run(*texts):
        for text in texts:
            shell.user_ns["In"].append(text)  # as a kernel does
            capsys.readouterr()
            shell.run_cell(text)
        return capsys.readouterr().out

    return run


def test_a_class_that_has_run_again_has_lost_its_methods(run):
    out = run(POOL, GROW, SHRINK, POOL, MAKE, USE)
    assert "› `grow` comes from a cell that has not run, or not since the cell of `cl" in out
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
