"""A class whose methods come in later cells: when one is missing, its cell is named."""

import re

import pytest

from lessons_lib.guide import restart

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
    "Other.grow = 1\nname = 2\nPool[0].x = 3",
    "x = Pool.__doc__ = 1",
    "not Python",
    "n\0",
    MAKE,
    USE,
]


@pytest.fixture
def run(make_lesson, run_cells):
    make_lesson(*CELLS)
    return run_cells


def test_a_class_that_has_run_again_has_lost_its_methods(run):
    out = run(POOL, GROW, SHRINK, POOL, MAKE, USE)
    assert "› `grow` comes from a cell that has not run, or not since the cell of `cl" in out
    card = out.split("› ")[1]
    assert "Run these 2 cells, in this order" in card and restart.IN_THE_MENU in card
    assert card.index("`def grow(self):` below “Exercise 1.1") < card.index("`def shrink(")
    assert run(GROW, SHRINK, USE) == ""


@pytest.mark.parametrize("shrink", ["", SHRINK.rpartition("\n")[0]])
@pytest.mark.parametrize("use", [USE, "Pool.shrink(pool)"])
def test_a_cell_that_has_not_run_or_has_lost_its_last_line_is_named(run, shrink, use):
    """The check of an exercise passes without that line."""
    out = run(POOL, GROW, shrink, MAKE, use)
    assert "Run this cell, and then" in out and "`def shrink(self):` below “Exerc" in out
    assert "adds it to the class: `Pool.shrink = shrink`. Is it still in your cell?" in out


def test_an_object_of_the_class_as_it_was_is_made_anew(run):
    out = run(POOL, GROW, MAKE, POOL, GROW, SHRINK, USE)
    assert "› This object is older than `class Pool`" in out and "Make the object anew" in out
    assert run(MAKE, USE) == ""


@pytest.mark.parametrize(
    "cell, like",
    [
        ("Shop().lenght", "length"),
        ("Shop.growht", "growth"),
        ("Shop().hidden", None),
        ("Shop().lengthening", None),  # not like enough
        ("Shop().crew", None),  # half of it is like `grow`
        ("raise AttributeError('none', name='', obj=Shop())", None),
        ("raise AttributeError('none', obj=Shop())", None),
        ("import torch\ntorch.arrange(3)", "arange"),
    ],
)
def test_a_misspelt_method_is_named_if_it_is_much_like_one(run, cell, like):
    shown = run("class Shop:\n    length = grow = growth = _hidden = lengthy = 1", cell)
    said = re.findall(r"› There is no `\w+`\. Do you mean `(\w+)`\?\n", shown)
    assert said == ([like] if like else []) and shown.count("›") == len(said)
