"""What a learner is told after an error: a name is missing, or a cell is no Python. A method
that is missing: test_missing_methods.py.
"""

import pytest

from lessons_lib.display import Card
from lessons_lib.guide import error_cards, syntax_errors

# A name that is missing


class Shell:
    """Of IPython, what a kernel knows."""

    def __init__(self, *names: str):
        self.user_ns = {"In": ["a cell"], **dict.fromkeys(names)}


MINE = "› You have written `{}`, and the check looks for `blocks_needed`.\n"
LIKE = "› There is no `{}`. Do you mean `{}`?\n"
NAMES = [
    # the name, what the kernel knows; what is said
    ("blocks_needed", ["block_needed"], MINE.format("block_needed")),
    ("couns", ["cout", "counts"], LIKE.format("couns", "counts")),
    ("blocks_neded", [], LIKE.format("blocks_neded", "blocks_needed")),
    ("prnit", [], LIKE.format("prnit", "print")),
    ("Check", ["check"], LIKE.format("Check", "check")),
    ("abc", ["abd"], ""),
    ("abce", ["abcd"], LIKE.format("abce", "abcd")),
    ("quite_another", [], ""),
    (None, [], ""),
]


@pytest.mark.parametrize("name, known, shown", NAMES)
def test_a_name_that_is_missing_is_explained(capsys, name, known, shown):
    error_cards.explain(Shell(*known), NameError("no", name=name), "00")
    assert capsys.readouterr().out == shown


def test_a_name_that_a_cell_makes_says_so_first(capsys):
    """Unless an answer is misspelt."""
    error_cards.explain(Shell("limi"), NameError("no", name="limit"), "00")
    assert capsys.readouterr().out.startswith("› limit comes from a cell that has not run")


def test_without_a_lesson_or_a_cell_no_answer_is_looked_for(capsys):
    shell = Shell()
    del shell.user_ns["In"]
    for error in (NameError("no", name="blocks_neded"), ValueError()):
        error_cards.explain(shell, error, None)
    assert capsys.readouterr().out == ""


def test_outside_of_notebooks_nothing_is_watched():
    error_cards.watch("01")


# A cell that cannot run

QUOTES = 'A text in this cell has only one of its two """'
CPP = "This looks like C++, and the cell is Python"
PLAIN = "Python cannot read this cell, so nothing of it has run"
GIVEN = (
    "\nUntil the cell runs, a check sees your answer from before. The cell as you were given "
    'it:\n  from lessons_lib.guide.show_cells import stub; stub("{}")'
)
MARK = (
    "The fault is at the mark ^, or a little before it. Often a bracket, a quote or a colon "
    "is missing, or a line is not as far to the right as its neighbours."
)
HALF = 'It begins with """ and ends with """. One of the two is missing.'
INTO = 'C++ goes into a Python text: r""" … """.'
OF_1_1 = (
    "The text of exercise 1.1 is between two lines of Python: it begins after "
    '`free_list = r"""` and ends before a line with """ alone.'
) + GIVEN.format("1.1")
OF_1_5 = GIVEN.format("1.5")
SYNTAX = {
    "one quote": ('x = """', QUOTES, HALF),
    "one quote of three": ('"""a""" """', QUOTES, HALF),
    "one quote in Python": ('def fork(): """', QUOTES, HALF + OF_1_5),
    "one quote in C++": ('free_list = r"""\nint x;', QUOTES, OF_1_1),
    "its end, by its class": ('class FreeList {\n};\n"""', QUOTES, OF_1_1),
    "C++ alone": ("int x = 1;", CPP, INTO),
    "C++ of an exercise": ("class FreeList {\n int x;\n};", CPP, OF_1_1),
    "C++ that includes": ("#include <vector>\nclass FreeList {\n};", CPP, OF_1_1),
    "C++ of another class": ("class Counter {\n};", CPP, INTO),
    "C++ in quotes": ('x = r"""\nint x;\n""" +', PLAIN, MARK),
    "Python": ("x = (1", PLAIN, MARK),
    "a function": ("def fork(x)", PLAIN, MARK + OF_1_5),
    "a variable": ("\nfork = (", PLAIN, MARK + OF_1_5),
    "a class": ("class fork(", PLAIN, MARK + OF_1_5),
    "another name": ("forked = (", PLAIN, MARK),
    "a call": ("x = fork(", PLAIN, MARK),
}


@pytest.mark.parametrize("running, title, body", SYNTAX.values(), ids=SYNTAX)
def test_a_cell_that_is_no_python_is_explained(running, title, body):
    assert syntax_errors.explain(SyntaxError(), running, "01") == Card(title, body)


def test_without_a_lesson_a_cell_is_of_no_exercise():
    assert syntax_errors.explain(SyntaxError(), "def fork(x)", None) == Card(PLAIN, MARK)
