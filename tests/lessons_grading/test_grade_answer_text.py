"""The text of an answer, and the edits that make ours into it."""

from types import SimpleNamespace

import pytest

from lessons_exercises import edits
from lessons_grading.answer_text import answer_text, as_edits
from lessons_grading.notebook import Cell, Notebook
from lessons_lib import checks

PYTHON, CPP = (checks.find(each) for each in ("0.1", "1.1"))


def text_in(exercise, *cells: str) -> str | None:
    notebook = Notebook("", None, tuple(Cell(1, cell) for cell in cells))
    return answer_text(notebook, exercise)


@pytest.fixture
def edits_of(monkeypatch):
    """What makes a text of ours into a student's, in Python or in C++."""

    def edits_of(ours: str, theirs: str, language: str = "python") -> str | None:
        monkeypatch.setattr(edits, "our_answers", lambda: {"9.9": ours})
        return as_edits(theirs, SimpleNamespace(id="9.9", language=language))

    return edits_of


NEEDED = {  # the cells, and the text: imports, then definitions, then the rest
    "the last one": (
        ["def blocks_needed(): return 1", "def blocks_needed(): return 2"],
        "def blocks_needed():\n    return 2\n",
    ),
    "a class": (["class blocks_needed: x = 1"], "class blocks_needed:\n    x = 1\n"),
    "only words": (
        ["def blocks_needed():\n    'Words.'", "x = 1"],
        "def blocks_needed():\n    pass\n",
    ),
    "words within": (
        [
            "def blocks_needed():\n class A:\n  '''Words.'''\n  x = 1\n return A",
        ],
        "def blocks_needed():\n\n    class A:\n        x = 1\n    return A\n",
    ),
    "imports": (
        [
            "import os.path\nfrom math import ceil as up, floor\nimport json as js, math",
            "def blocks_needed(): return up(os.path.x + js.y)",
        ],
        "import os.path\nimport json as js, math\nfrom math import ceil as up, floor\n"
        "def blocks_needed():\n    return up(os.path.x + js.y)\n",
    ),
    "one import of two names": (
        ["from math import ceil, floor", "def blocks_needed(): return ceil(floor(3))"],
        "from math import ceil, floor\ndef blocks_needed():\n    return ceil(floor(3))\n",
    ),
    "itself": (
        ["def blocks_needed(n): return blocks_needed(n - 1) + one", "one = 1"],
        "def blocks_needed(n):\n    return blocks_needed(n - 1) + one\none = 1\n",
    ),
    "each other": (
        ["def more(): return less()", "def less(): return more()", "blocks_needed = 3"]
        + ["def blocks_needed(): return more()"],
        "def less():\n    return more()\ndef more():\n    return less()\n"
        "def blocks_needed():\n    return more()\n",
    ),
    "values of values": (
        ["one = two = 1\na.b = 3", "three = one + two", "def blocks_needed(): return three"],
        "def blocks_needed():\n    return three\nthree = one + two\none = two = 1\n",
    ),
    "what is known is not taken along": (
        ["torch = max = 3", "import torch", "def blocks_needed(): return max(torch.x, 1)"],
        "def blocks_needed():\n    return max(torch.x, 1)\n",
    ),
    "cells that are no Python": (
        ["def blocks_needed(): return 1", "x = (", "\0", "%time\n  !ls\ny = 2"]
        + ["def blocks_needed(): return y"],
        "def blocks_needed():\n    return y\ny = 2\n",
    ),
}


@pytest.mark.parametrize("cells, text", NEEDED.values(), ids=NEEDED)
def test_an_answer_comes_with_what_it_needs(cells, text):
    assert text_in(PYTHON, *cells) == text


def test_what_its_mistakes_know_is_not_taken_along():
    exercise = SimpleNamespace(
        answer_name="f", language="python", mistakes=SimpleNamespace(scope={"given": 1})
    )
    cells = "given = own = 2", "def f(): return given", "def g(): return given"
    assert text_in(exercise, *cells) == "def f():\n    return given\n"
    exercise.mistakes = None
    assert text_in(exercise, *cells) == "def f():\n    return given\ngiven = own = 2\n"


@pytest.mark.parametrize(
    "cell", ["x = 1", "blocks_needed = lambda: 3", "import blocks_needed", "def f(): pass"]
)
def test_without_a_definition_of_its_own_there_is_no_text(cell):
    assert text_in(PYTHON, cell) is None


def test_an_answer_in_another_language_is_its_string_without_comments():
    cell = (
        f"{CPP.answer_name} = '''\n// first\n  int a;  // a\n\n\tint /* b\n c */ b;  \n"
        "/* d */ int e; /* f */\n'''"
    )
    assert text_in(CPP, "x = 1", cell) == "  int a;\n\tint  b;\n int e;\n"


@pytest.mark.parametrize("value", ["3", "'a' + 'b'", "b'a'", "f'{x}'", "other"])
def test_what_is_no_plain_string_is_no_text(value):
    assert text_in(CPP, "other = 'a'", f"{CPP.answer_name} = {value}") is None


OURS = "def f(a):\n    b = a + 1\n    c = b * 2\n    d = c - 3\n    return d\n"
EDITS = {  # ours, theirs, and the lines of the entry
    "a line": ("b = a + 1", "b = a", ["b = a + 1 => b = a"]),
    "a line less": ("    b = a + 1\n", "", ["b = a + 1 =>"]),
    "a line more": (
        "    b = a + 1\n",
        "    b = a + 1\n    a = 0\n",
        ["b = a + 1 =>", "    b = a + 1", "    a = 0"],
    ),
    "two of three lines": (
        "    c = b * 2\n    d = c - 3\n",
        "    d = b\n",
        ["c = b * 2 d = c - 3 => d = b"],
    ),
    "within": (
        "    c = b * 2\n",
        "    if b:\n        c = 2\n",
        ["c = b * 2 =>", "    if b:", "        c = 2"],
    ),
    "letters": ("b * 2", "b * 'ü'", ["c = b * 2 => c = b * 'ü'"]),
}


@pytest.mark.parametrize("old, new, lines", EDITS.values(), ids=EDITS)
def test_an_entry_quotes_the_lines_that_differ(edits_of, old, new, lines):
    assert OURS.count(old) == 1
    entry = edits_of(OURS, OURS.replace(old, new))
    assert entry == "\n".join(f"    {line}" for line in lines)


def test_what_only_looks_different_has_no_edits(edits_of):
    assert edits_of(OURS, OURS) is None
    assert edits_of(OURS, OURS.replace("a + 1", "(a + 1)  # one")) is None
    assert edits_of("int a;\n", "int a; // one", "C++") is None


def test_three_edits_are_the_most(edits_of):
    ours = "def f(a):\n" + "".join(f"    {name} = 1\n    a.{name}()\n" for name in "bcde")
    three = ours.replace("b = 1", "b = 2").replace("c = 1", "c = 2").replace("d = 1", "d = 2")
    entry = edits_of(ours, three)
    assert entry == "\n".join(f"    {name} = 1 => {name} = 2" for name in "bcd")
    assert edits_of(ours, three.replace("e = 1", "e = 2")) is None


def test_the_lines_of_other_languages_lose_only_the_indent_that_all_share(edits_of):
    ours = "int f() {\n  int a = 1;\n  int b = 2;  // two\n  return a;\n}\n"
    theirs = "int f() {\n  int a = 1;\n  if (a)\n    a = 3;\n  return a;\n}\n"
    assert edits_of(ours, theirs, "C++") == (
        "    int b = 2; =>\n        if (a)\n          a = 3;"
    )
    assert edits_of(ours, "int f() {\n  return a;\n}\n", "C++") == (
        "    int a = 1; int b = 2; =>"
    )


def test_a_line_before_the_first_is_put_there(edits_of):
    entry = edits_of("int a;\nint b;\n", "int c;\nint a;\nint b;\n", "C++")
    assert entry == "    int a; =>\n        int c;\n        int a;"


def test_an_entry_cannot_begin_with_a_line_that_defines(edits_of):
    """It would be read as a whole text."""
    assert edits_of(OURS, OURS.replace("def f(a):", "def f(b):")) is None


def test_a_line_that_is_there_twice_cannot_be_quoted(edits_of):
    ours = "def f(a):\n    a += 1\n    a *= 2\n    a += 1\n    return a\n"
    assert edits_of(ours, ours.replace("a += 1\n    return", "a += 2\n    return")) is None
    assert edits_of(ours, ours.replace("a *= 2", "a *= 3")) == "    a *= 2 => a *= 3"


def test_of_a_long_text_only_the_lines_that_differ_are_quoted(edits_of):
    ours = "def f(a):\n    first = 1\n" + "    a += 1\n" * 250 + "    last = 1\n"
    theirs = ours.replace("first = 1", "first = 2").replace("last = 1", "last = 2")
    assert edits_of(ours, theirs) == "    first = 1 => first = 2\n    last = 1 => last = 2"


def test_half_a_character_is_no_edit(edits_of):
    assert edits_of("int a;\nint b;\n", 'int a;\nauto b = "\ud800";\n', "C++") is None
