"""Which cells of a lesson make, change and need a name, and which of them are to be run."""

import pytest

from lessons_lib.guide import restart

RUN = "Run {}, and then the one that failed (a click, then Shift+Enter):"
LATER = "When the cells run from top to bottom, the check comes first, and fails again."


def body(card) -> list[str]:
    return card.body.split("\n")


@pytest.mark.parametrize(
    "source, first",
    [
        ("\n  \n# a comment\n@decorated\ndef f():\n    pass", "def f():"),
        ("# a comment", ""),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
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
def test_a_cell_makes_changes_and_needs_names(make_lesson, source):
    (cell,) = make_lesson(source)
    found = cell.makes, cell.changes, cell.needs
    assert found == tuple(frozenset(names) for names in NAMES[source])


def test_modules_and_pictures_are_changed_by_no_call(make_lesson):
    """Each cell with a picture seemed to be needed before the next one."""
    *_, cell = make_lesson(
        "import a\nfrom b import c\nd = open_lesson('01')",
        "import e.f as g",
        "import h\nx +",
        "a.seed()\nb.seed()\nc.seed()\nd.show()\ng.seed()\nh.seed()\nx.append(1)",
    )
    assert cell.changes == {"b", "c", "x", "h"}


def test_the_last_heading_above_a_cell_counts(make_lesson):
    cells = make_lesson(
        "a",
        "# 01 · The lesson",
        "b",
        "## Two\n\n### Three\n\n## Four\n\nText",
        "c",
        "#### Five",
        "#text",
        "d",
    )
    assert [cell.heading for cell in cells] == ["", "", "Four", "Five"]


@pytest.mark.usefixtures("plain_locale")
def test_a_lesson_may_have_any_letters(make_lesson):
    assert [cell.source for cell in make_lesson("é = 1")] == ["é = 1"]


NEEDED = {  # the cells, which cell runs, the name that it lacks; what is to be run
    "the last that makes it, and what fills it": (
        ["x = []", "x = [y]", "x.append(1)", "y = 0", "x.append(z)", "z = 1", "x = 3"],
        5,
        "x",
        ["x = [y]", "x.append(1)", "x.append(z)"],
    ),
    "what is needed in turn": (
        ["a = 1", "b = a", "other = 1", "c = b + a + len('') + d", "e = c + a", "e"],
        5,
        "e",
        ["a = 1", "b = a", "c = b + a + len('') + d", "e = c + a"],
    ),
    "all that the cell lacks": (["a = 1", "b = 1", "a, b, c"], 2, "a", ["a = 1", "b = 1"]),
    "none that nothing makes": (["b = 1", "zip = 2", "b, zip, no"], 2, "b", ["b = 1"]),
}


@pytest.mark.parametrize("texts, place, name, wanted", NEEDED.values(), ids=NEEDED)
def test_what_makes_a_name_is_to_be_run(make_lesson, texts, place, name, wanted):
    make_lesson(*texts)
    card = restart.explain(name, texts[place], "01", ())
    assert (
        card.title == f"{name} comes from a cell that has not run yet, or not since a restart"
    )
    assert body(card)[1:-1] == [f"`{text}` at the top of the notebook" for text in wanted]
    number = len(wanted)
    which = "this cell" if number == 1 else f"these {number} cells, in this order"
    assert (body(card)[0], body(card)[-1]) == (RUN.format(which), restart.IN_THE_MENU)


def test_what_the_kernel_knows_needs_no_cell(make_lesson):
    make_lesson("a = 1", "b = a", "use(a, b, c)")
    card = restart.explain("b", "use(a, b, c)", "01", {"a"})
    assert body(card)[1:-1] == ["`b = a` at the top of the notebook"]
    for name, lesson in (("c", "01"), ("a", None), ("len", "01")):
        assert restart.explain(name, "use(a, b, c)", lesson, ()) is None


def test_the_cell_that_runs_is_found_by_its_text_or_by_its_names(make_lesson):
    cells = make_lesson(
        "a = 1", "b = 1", "a = b = c = 1", "a = b = d = 1", "print(a)", "b = 1 "
    )
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
        assert restart.cells_above(running, "01") == cells[:place], running


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
def test_a_cells_own_text_may_name_its_lesson(make_lesson, source, number):
    make_lesson("lost = 1", number=number or "01")
    card = restart.explain("lost", f"{source}\nlost", None, ())
    assert bool(card) is bool(number)


@pytest.mark.parametrize(
    "text, number, is_so",
    [
        ("\na = 1 \n", "01", True),
        ("a = 2", "01", False),
        ("a = 1", "02", False),
        ("a = 1", None, False),
        ("", "", False),
    ],
)
def test_a_text_is_a_lessons_if_it_is_unchanged(make_lesson, text, number, is_so):
    make_lesson(" a = 1", "b = 2")
    assert restart.is_a_lessons(text, number) is is_so


@pytest.mark.parametrize("count, more", [(12, []), (13, ["and 1 more"]), (15, ["and 3 more"])])
def test_twelve_cells_are_listed(make_lesson, count, more):
    lines = restart.to_run(make_lesson(*[f"a{number} = 1" for number in range(count)]))
    assert lines[0] == RUN.format(f"these {count} cells, in this order")
    assert len(lines) == 13 + len(more) and lines[13:] == more


def answers(text: str, **scope):
    exec(text, scope)
    return scope["answer"]


ANSWERS = [
    "def answer(x):\n    return x + a + z + len('')",
    "def answer():\n    return [a for _ in 'x']",
    "def answer():\n    def inner():\n        return a\n    return inner",
    "class answer:\n    size = 1\n    def method(self):\n        return a",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_told_of_a_name_that_is_not_there(make_lesson, text):
    make_lesson("a = b", "b = 1", "c = 2")
    card = restart.missing_in(answers(text), "01")
    assert card.title == "a comes from a cell that has not run yet, or not since a restart"
    assert body(card)[1:] == ["`a = b` at the top of the notebook", restart.IN_THE_MENU]
    assert restart.missing_in(answers(text, a=1), "01") is None
    assert restart.missing_in(answers(text), "02") is None
    assert restart.missing_in("a", "01") is None


ORDERS = {  # the cells, and whether the name `a` comes later than the answer
    "above": (["a = 1", "b = 1", "def answer(): pass"], False),
    "in the same": (["b = 1", "a = 1\ndef answer(): pass"], False),
    "just below": (["b = 1", "def answer(): pass", "a = 1"], True),
    "far below": (["def answer(): pass", "b = 1", "a = 1"], True),
    "above and below": (["a = 1", "def answer(): pass", "a = 2"], False),
    "without the answer": (["b = 1", "a = 1"], False),
}


@pytest.mark.parametrize("texts, is_later", ORDERS.values(), ids=ORDERS)
def test_a_name_from_below_is_told_that_the_check_fails_again(make_lesson, texts, is_later):
    make_lesson(*texts)
    card = restart.missing_in(answers("def answer():\n    return a"), "01")
    whose = "a later cell, which" if is_later else "a cell that"
    assert card.title == f"a comes from {whose} has not run yet, or not since a restart"
    assert body(card)[-1] == (LATER if is_later else restart.IN_THE_MENU)


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"cells": [{}]}', '{"cells": 1}']
)
def test_a_lesson_that_cannot_be_read_has_no_cells(make_lesson, tmp_path, text):
    make_lesson("a = 1")
    (tmp_path / "02_b.ipynb").write_text(text)
    for number in ("02", "03"):
        assert restart.cells_of(number) == ()
        assert restart.explain("check", "check", number, ()) is None


@pytest.mark.parametrize(
    "session, number",
    [
        ("notebooks/01_block_manager.ipynb", "01"),
        ("/home/me/course/01_block_manager (0.2).ipynb", "01"),
        ("summary.ipynb", "summary"),
        ("mine.ipynb", None),
        (None, None),
    ],
)
def test_the_kernel_knows_its_lesson_from_its_notebooks_name(monkeypatch, session, number):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert restart.lesson_of_this_kernel() == number
