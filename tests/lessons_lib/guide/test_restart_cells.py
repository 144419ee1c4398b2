"""Which cells of a lesson make, change and need a name, and which of them are to be run."""

import json

import pytest

from lessons_guide import restart

RUN = "Run {}, and then the one that failed (a click, then Shift+Enter):"


@pytest.fixture
def lesson(monkeypatch, tmp_path):
    """Makes lesson 01 of these cells. A text that begins with # is no code."""
    monkeypatch.setattr(restart, "NOTEBOOKS", tmp_path)
    restart._cells.cache_clear()

    def make(*texts: str) -> tuple[restart.CodeCell, ...]:
        cells = [
            {"cell_type": "markdown" if text[:1] == "#" else "code", "source": [text]}
            for text in texts
        ]
        text = json.dumps({"cells": cells}, ensure_ascii=False)
        (tmp_path / "01_a.ipynb").write_text(text, encoding="utf-8")
        return restart._cells("01")

    yield make
    restart._cells.cache_clear()


def sources(cells) -> list[str]:
    return [cell.source for cell in cells]


def body(card) -> list[str]:
    return card.body.split("\n")


@pytest.mark.parametrize(
    "source, first",
    [
        ("\n  \n# a comment\n@decorated\ndef f():\n    pass", "def f():"),
        ("# a comment", ""),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 62, "x" * 59 + "…"),
    ],
)
def test_a_cell_in_words_is_its_first_line_of_code(source, first):
    cell = restart.CodeCell(source, "A heading", *[frozenset()] * 3)
    assert cell.in_words() == f"`{first}` below “A heading”"
    cell = restart.CodeCell(source, "", *[frozenset()] * 3)
    assert cell.in_words() == f"`{first}` at the top of the notebook"


NAMES = {  # source: what it makes, changes and needs
    "x = y": ("x", "", "y"),
    "x = 1\nx.a = 2\nx[0] = y": ("x", "", "y"),
    "x.a.b = y": ("", "x", "xy"),
    "x[0].a[1] = 1": ("", "x", "x"),
    "x.a(y)": ("", "x", "xy"),
    "x(y)": ("", "", "xy"),
    "x.a": ("", "", "x"),
    "x[y]": ("", "", "xy"),
    "z = x.a(y)": ("z", "", "xy"),
    "x": ("", "", "x"),
    "-x.a": ("", "", "x"),
    "'x'.join(y)": ("", "", "y"),
    "f(x).a(y)": ("", "", "fxy"),
    "import a.b, c.d as e": ("ae", "", ""),
    "from a.b import c, d as e": ("ce", "", ""),
    "def f(x, y=z):\n    a = x\n    return a + b": ("f", "", "zb"),
    "def f():\n    def g():\n        return b\n    return g": ("f", "", "b"),
    "def f():\n    global b\n    b = 1": ("f", "", ""),
    "def f():\n    x.a = 1\n    y.b()": ("f", "", "xy"),
    "class C(x):\n    y = 1\n    def m(self): return z": ("C", "", "xz"),
    "[n for n in x]": ("", "", "x"),
    "f = lambda n: n + b": ("f", "", "b"),
    "for n in x: m = n": ("nm", "", "x"),
    "with x as y: pass": ("y", "", "x"),
    "x +": ("", "", ""),
    "x\0": ("", "", ""),
}


@pytest.mark.parametrize("source", NAMES)
def test_a_cell_makes_changes_and_needs_names(source):
    assert restart._names_in(source) == tuple(frozenset(names) for names in NAMES[source])


def test_modules_and_pictures_are_changed_by_no_call(lesson):
    cells = lesson(
        "import a\nfrom b import c\nd = open_lesson('01')",
        "import e.f as g",
        "a.seed()\nb.seed()\nc.seed()\nd.show()\ng.seed()\nx.append(1)",
    )
    assert cells[2].changes == {"b", "c", "x"}


def test_a_cell_that_is_no_python_changes_nothing(lesson):
    assert [cell.changes for cell in lesson("import a\nx +", "a.seed()")] == [set(), {"a"}]


def test_the_last_heading_above_a_cell_counts(lesson):
    cells = lesson(
        "a",
        "# 01 · The lesson",
        "b",
        "## Two\n\n### Three\n\n## Four\n\nText",
        "c",
        "#### Five",
    )
    assert [cell.heading for cell in cells] == ["", "", "Four"]
    cells = lesson_again(lesson, "## Two", "a", "#text", "b")
    assert [cell.heading for cell in cells] == ["Two", "Two"]


def lesson_again(lesson, *texts):
    restart._cells.cache_clear()
    return lesson(*texts)


@pytest.mark.usefixtures("plain_locale")
def test_a_lesson_may_have_any_letters(lesson):
    assert sources(lesson("é = 1")) == ["é = 1"]


def test_a_name_needs_the_last_cell_that_makes_it_and_those_that_fill_it(lesson):
    cells = lesson(
        "x = []", "x = [y]", "x.append(1)", "y = 0", "x.append(z)", "z = 1", "x = 3"
    )
    assert sources(restart._needed({"x"}, cells[:6], ())) == [
        "x = [y]",
        "x.append(1)",
        "x.append(z)",
    ]
    assert sources(restart._needed({"x"}, cells, ())) == ["x = 3"]


def test_what_is_needed_needs_more_in_turn(lesson):
    cells = lesson("a = 1", "b = a", "unrelated = 1", "c = b + a + len('') + d", "e = c + a")
    assert sources(restart._needed({"e"}, cells, ())) == [
        "a = 1",
        "b = a",
        *sources(cells[3:]),
    ]
    assert sources(restart._needed({"e"}, cells, {"b"})) == ["a = 1", *sources(cells[3:])]


@pytest.mark.parametrize("other", ["z", "zip", "unknown", "a"])
def test_a_name_that_is_there_or_nowhere_does_not_hide_the_others(lesson, other):
    cells = lesson("b = 1", "zip = 2", "z = 3")
    assert sources(restart._needed({"b", other}, cells, {"z"})) == ["b = 1"]


def test_the_cell_that_runs_is_found_by_its_text_or_by_its_names(lesson):
    cells = lesson("a = 1", "b = 1", "a = b = c = 1", "a = b = d = 1", "print(a)", "b = 1 ")
    for running, place in [
        (" b = 1\n", 1),
        ("print(a)", 4),
        ("a = 2", 0),
        ("a = b = 2", 0),
        ("a = b = c = d = 2", 2),
        ("a = b = d = 2", 3),
        ("e = 1", 6),
        ("print(b)", 6),
    ]:
        assert restart._place(running, cells) == place, running
        assert restart.cells_above(running, "01") == cells[:place]


@pytest.mark.parametrize(
    "source, number",
    [
        ('check("1.2", f)', "01"),
        ("hint('12.3')", "12"),
        ('solution("3.1")', "03"),
        ('draw = open_lesson("summary")', "summary"),
        ("raise NotImplementedError('Exercise 7.1')", "07"),
        ("Exercise 11.2", "11"),
        ("recheck(1.2)", None),
    ],
)
def test_a_cells_own_text_may_name_its_lesson(source, number):
    assert restart._lesson_in(source) == number


@pytest.mark.parametrize(
    "text, number, is_so",
    [
        ("a = 1", "01", True),
        ("\na = 1 \n", "01", True),
        ("a = 2", "01", False),
        ("a = 1", "02", False),
        ("a = 1", None, False),
        ("", "", False),
    ],
)
def test_a_text_is_a_lessons_if_it_is_unchanged(lesson, text, number, is_so):
    lesson(" a = 1", "b = 2")
    assert restart.is_a_lessons(text, number) is is_so


def test_what_a_failed_cell_needs_is_run_too_if_it_makes_the_name(lesson):
    lesson("a = 1", "b = 1", "use(a, b, c)")
    card = restart.explain("a", "use(a, b, c)", "01", ())
    assert card.title == "a comes from a cell that has not run yet, or not since a restart"
    assert body(card) == [
        RUN.format("these 2 cells, in this order"),
        "`a = 1` at the top of the notebook",
        "`b = 1` at the top of the notebook",
        restart.IN_THE_MENU,
    ]
    assert body(restart.explain("a", "use(a, b, c)", "01", {"b"}))[0] == RUN.format(
        "this cell"
    )
    assert restart.explain("c", "use(a, b, c)", "01", ()) is None
    assert restart.explain("a", "use(a, b, c)", None, ()) is None


@pytest.mark.parametrize("count, more", [(12, []), (13, ["and 1 more"]), (15, ["and 3 more"])])
def test_twelve_cells_are_listed(lesson, count, more):
    lines = restart.to_run(lesson(*[f"a{number} = 1" for number in range(count)]))
    assert lines[0] == RUN.format(f"these {count} cells, in this order")
    assert len(lines) == 13 + len(more) and lines[13:] == more


def answers(text: str, **scope):
    exec(text, scope)
    return scope["answer"]


ANSWERS = [
    "def answer(x):\n    return x + a + len('')",
    "def answer():\n    return [a for _ in 'x']",
    "def answer():\n    def inner():\n        return a\n    return inner",
    "class answer:\n    size = 1\n    def method(self):\n        return a",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_told_of_a_name_that_is_not_there(lesson, text):
    lesson("a = b", "b = 1", "c = 2")
    card = restart.missing_in(answers(text), "01")
    assert card.title == "a comes from a cell that has not run yet, or not since a restart"
    assert body(card)[1:] == ["`a = b` at the top of the notebook", restart.IN_THE_MENU]
    assert restart.missing_in(answers(text, a=1), "01") is None
    assert restart.missing_in(answers(text), "02") is None


def test_what_is_no_function_uses_no_names(lesson):
    lesson("a = 1")
    assert restart.missing_in("a", "01") is None


def test_one_missing_name_is_told_even_after_one_that_nothing_makes(lesson):
    lesson("a = 1")
    assert restart.missing_in(answers("def answer():\n    return z, a"), "01")


ORDERS = {  # the cells, and whether the name `a` comes later than the answer
    "far above": (["a = 1", "b = 1", "def answer(): pass"], False),
    "just above": (["a = 1", "def answer(): pass"], False),
    "in the same": (["b = 1", "a = 1\ndef answer(): pass"], False),
    "just below": (["b = 1", "def answer(): pass", "a = 1"], True),
    "far below": (["def answer(): pass", "b = 1", "a = 1"], True),
    "above and below": (["a = 1", "def answer(): pass", "a = 2"], False),
    "without the answer": (["b = 1", "a = 1"], False),
}


@pytest.mark.parametrize("texts, is_later", ORDERS.values(), ids=ORDERS)
def test_a_name_from_below_is_told_that_the_check_fails_again(lesson, texts, is_later):
    lesson(*texts)
    card = restart.missing_in(answers("def answer():\n    return a"), "01")
    whose = "a later cell, which" if is_later else "a cell that"
    assert card.title == f"a comes from {whose} has not run yet, or not since a restart"
    again = "When the cells run from top to bottom, the check comes first, and fails again."
    assert body(card)[-1] == (again if is_later else restart.IN_THE_MENU)


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"cells": [{}]}', '{"cells": 1}']
)
def test_a_lesson_that_cannot_be_read_has_no_cells(lesson, tmp_path, text):
    (tmp_path / "02_b.ipynb").write_text(text)
    assert restart._cells("02") == () == restart._cells("03")
