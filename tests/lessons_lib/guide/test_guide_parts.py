"""What a learner is told after an error or a check, for made-up exercises and cells."""

import json
import sys
from types import SimpleNamespace

import pytest

from lessons_guide import (
    KINDS,
    advice,
    given,
    methods,
    misspelt,
    progress_page,
    restart,
    unfinished,
)
from lessons_lib import checks, progress
from lessons_lib.checks import CheckResult
from lessons_lib.display import Card


def exercise(id, name, language="python", mistakes=()):
    return SimpleNamespace(
        id=id, answer_name=name, language=language, title=f"the {name}", mistakes=mistakes
    )


EXERCISES = {
    "1.1": exercise("1.1", "count"),
    "1.2": exercise("1.2", "free_list", "cpp"),
    "1.3": exercise("1.3", "gather.rows", "cuda"),
}
ANSWERS = {
    "1.1": "class Counter: pass",
    "1.2": "class Stack { };",
    "1.3": "class Rows { };",
}


@pytest.fixture(autouse=True)
def course(monkeypatch):
    """A course of one lesson with three exercises. Nothing is remembered at first."""
    remembered = {}
    monkeypatch.setattr(checks, "find", EXERCISES.__getitem__)
    monkeypatch.setattr(
        checks,
        "exercises_of",
        lambda lesson: [*EXERCISES.values()] if lesson == "01" else [],
    )
    monkeypatch.setattr(checks, "lessons", lambda: ["01"])
    monkeypatch.setattr(progress, "load", lambda: remembered)
    monkeypatch.setattr(given, "our_answer", lambda exercise: ANSWERS[exercise.id])
    return remembered


@pytest.fixture
def shown(monkeypatch):
    """The cards that are shown."""
    shown = []
    for module in (given, misspelt):
        monkeypatch.setattr(module, "show", shown.append)
    return shown


# After a check


def failed(message="It is wrong.", exercise="1.1") -> CheckResult:
    return CheckResult(exercise, False, "wrong", message)


RUN_IT = "run its cell: click on it and press Shift+Enter"


def test_the_same_answer_once_more_is_told_to_run_its_cell(monkeypatch):
    monkeypatch.setattr(advice, "_failed", {})
    usual = 'It is wrong.\nOne hint at a time: hint("1.1")'
    again = "\nThis is the answer of your last check. Is yours newer? Then " + RUN_IT + "."
    assert advice.after_failing(failed(), print) == usual
    assert advice.after_failing(failed(), print) == usual + again
    assert advice.after_failing(failed(), len) == usual
    assert "last check" not in advice.after_failing(failed(exercise="1.2"), len)


class Pool:
    grow = None


def answer_with(**scope):
    exec("def answer(): pass", scope)
    return scope["answer"]


LACKS = "It raises AttributeError: 'Pool' object has no attribute 'grow' in line 2."
OWNERS = {
    "the notebook's class has it": (LACKS, answer_with(Pool=Pool), True),
    "the notebook's class lacks it": (LACKS, answer_with(Pool=int), False),
    "it is no class": (LACKS, answer_with(Pool=Pool()), False),
    "the notebook has no such class": (LACKS, answer_with(grow=Pool), False),
    "the answer has no globals": (LACKS, 3, False),
    "another message": ("It is wrong.", answer_with(Pool=Pool), False),
}


@pytest.mark.parametrize("message, answer, is_told", OWNERS.values(), ids=OWNERS)
def test_a_method_that_only_the_notebook_has_is_told(monkeypatch, message, answer, is_told):
    monkeypatch.setattr(advice, "_failed", {})
    body = advice.after_failing(failed(message), answer)
    advised = (
        "\nThe notebook's `Pool` has `grow`. But a check tries your answer on our own "
        "object. Let `grow` be a function, and hand it the object."
    )
    assert body == f'{message}{advised * is_told}\nOne hint at a time: hint("1.1")'


@pytest.mark.parametrize(
    "message, words",
    [
        ("It calls exercise 2.10, which is a stub.", "needs exercise 2.10 first"),
        ("It is still the stub.", "not attempted yet"),
    ],
)
def test_an_answer_that_was_not_tried_says_why(message, words):
    assert advice.standing(failed(message)) == words


@pytest.mark.parametrize(
    "entry, has_passed", [(None, False), ({"passed": False}, False), ({"passed": True}, True)]
)
def test_a_stub_that_has_passed_may_be_another_copy(course, entry, has_passed):
    if entry:
        course["1.1"] = entry
    first = (
        f"Still the stub.\nHave you written it? Then take the stub's line out, and {RUN_IT}."
    )
    more = "\nIt has passed before. Is that answer in another tab, or in another copy?"
    assert advice.before_trying(failed("Still the stub.")) == first + more * has_passed


def test_an_answer_is_the_learners_by_its_name():
    def count():
        pass

    answers = count, lambda: 1, "a text", print
    assert [advice.is_the_learners(each, EXERCISES["1.1"]) for each in answers] == [
        True,
        True,
        True,
        False,
    ]


# The cell as it was given


@pytest.fixture
def notebooks(monkeypatch, tmp_path):
    """Puts a cell of exercise 1.2 into the notebooks and the solutions."""

    def put(name: str, *lines: str):
        cell = {"metadata": {"exercise": "1.2"}, "source": [f"{line}\n" for line in lines]}
        cells = [{"metadata": {}, "source": ["x"]}, cell]
        (tmp_path / name).mkdir(exist_ok=True)
        text = json.dumps({"cells": cells}, ensure_ascii=False)
        (tmp_path / name / "01_a.ipynb").write_text(text, encoding="utf-8")

    monkeypatch.setattr(given, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(given, "SOLUTIONS", tmp_path / "solutions")
    return put


@pytest.mark.usefixtures("plain_locale")
def test_a_cell_is_shown_as_it_was_given(notebooks, shown):
    notebooks("notebooks", "def count():", "    return 'é'")
    given.stub("1.2")
    given.stub("1.1")
    assert shown == [
        Card("Exercise 1.2 as you were given it", "  def count():\n      return 'é'\n  "),
        Card("Exercise 1.1 as you were given it", "  It is not here."),
    ]


def test_our_answer_is_the_whole_cell_if_there_is_one(notebooks, shown):
    given.solution(EXERCISES["1.2"])
    notebooks("solutions", "# BEGIN SOLUTION", "def count(): pass")
    given.solution(EXERCISES["1.2"])
    assert shown == [
        Card("One answer to exercise 1.2", "  class Stack { };"),
        Card("One answer to exercise 1.2", "  def count(): pass\n  "),
    ]


# A method that is missing


def cells(monkeypatch, *sources):
    """The cells above the one that runs, in lesson 01."""
    made = tuple(restart.CodeCell(source, "", *[frozenset()] * 3) for source in sources)
    monkeypatch.setattr(
        restart, "cells_above", lambda running, lesson: made if lesson == "01" else ()
    )


def lacks(thing, name) -> AttributeError:
    return AttributeError("none", name=name, obj=thing)


class Grown:
    pass


def test_the_cells_that_add_to_a_class_are_named(monkeypatch):
    cells(
        monkeypatch,
        "class Grown: pass",
        "Grown.grow = grow",
        "Other.shrink = 1\nname = 2\nGrown[0].x = 3",
        "x = Grown.__doc__ = 1",
        "Grown.other = other",
        "not Python",
        "n\0",
    )
    for thing in (Grown(), Grown):
        card = methods.explain(lacks(thing, "grow"), "", "01", {"Grown": Grown})
        assert card.title == (
            "`grow` comes from a cell that has not run, or not since the cell of "
            "`class Grown` has run again"
        )
        assert card.body.split("\n") == [
            "Run these 2 cells, in this order, and then the one that failed (a click, then "
            "Shift+Enter):",
            "`Grown.grow = grow` at the top of the notebook",
            "`Grown.other = other` at the top of the notebook",
            "A line at the end adds it to the class: `Grown.grow = grow`. Is it still in "
            "your cell?",
            restart.IN_THE_MENU,
        ]


def test_an_object_of_an_older_class_is_made_anew(monkeypatch):
    cells(monkeypatch, "Grown.grow = grow")
    card = methods.explain(lacks(Grown(), "grow"), "", "01", {"Grown": Pool})
    assert card.title.startswith("This object is older than `class Grown`")
    assert card.body.endswith(restart.IN_THE_MENU)
    assert "has not run" in methods.explain(lacks(Grown(), "grow"), "", "01", {}).title


class Shop:
    length = grow = growth = _hidden = lengthy = 1


@pytest.mark.parametrize(
    "name, like",
    [
        ("lenght", "length"),
        ("grwo", "grow"),
        ("growht", "growth"),
        ("hidden", None),
        ("glow", "grow"),
        ("lengthening", None),  # not like enough
        ("crew", None),  # half of it is like `grow`
        ("", None),
        (None, None),
    ],
)
def test_a_misspelt_method_is_named_if_it_is_much_like_one(monkeypatch, name, like):
    cells(monkeypatch, "Other.x = 1")
    for lesson in ("01", None):
        card = methods.explain(lacks(Shop(), name), "", lesson, {})
        assert card == (like and Card(f"There is no `{name}`. Do you mean `{like}`?"))


# A name that is missing


class Shell:
    def __init__(self, *cells, **names):
        self.user_ns, self.did = {"In": list(cells or ["a cell"]), **names}, []

    def set_custom_exc(self, kinds, show):
        assert kinds is KINDS
        self.show = show

    def showtraceback(self, error, tb_offset=None):
        self.did.append((error, tb_offset))


def test_an_error_is_shown_and_then_explained(monkeypatch, shown):
    shell, error = Shell("countt()"), NameError("no", name="countt")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    misspelt.watch("01")
    shell.show(shell, NameError, error, "the traceback", tb_offset=3)
    assert shell.did == [((NameError, error, "the traceback"), 3)]
    assert shown == [Card("There is no `countt`. Do you mean `count`?")]


@pytest.mark.parametrize("module", [None, SimpleNamespace(get_ipython=lambda: None)])
def test_outside_of_notebooks_nothing_is_watched(monkeypatch, module):
    if module:
        monkeypatch.setitem(sys.modules, "IPython", module)
    else:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
    misspelt.watch("01")


def test_each_kind_of_error_has_its_explanation(monkeypatch, shown):
    shell = Shell("a", "b", "the cell that runs", known=1)
    monkeypatch.setattr(methods, "explain", lambda *words: ("method", *words))
    monkeypatch.setattr(unfinished, "explain", lambda *words: ("other", *words))
    monkeypatch.setattr(restart, "explain", lambda *words: ("name", *words))
    running, lacking, wrong = "the cell that runs", lacks(1, "x"), TypeError()
    for error in (NameError("no", name="unlike"), NameError("no"), lacking, wrong):
        misspelt.explain(shell, error, "01")
    assert shown == [
        ("name", "unlike", running, "01", shell.user_ns),
        ("name", "", running, "01", shell.user_ns),
        ("method", lacking, running, "01", shell.user_ns),
        ("other", wrong, running, "01"),
    ]


def test_what_cannot_be_explained_shows_nothing(monkeypatch, shown):
    monkeypatch.setattr(unfinished, "explain", lambda *words: None)
    shell = Shell()
    del shell.user_ns["In"]
    misspelt.explain(shell, ValueError(), None)
    assert not shown


NAMES = [
    # the name, what the kernel knows, whether a cell makes it; what is said
    (
        "count",
        ["counts"],
        False,
        "You have written `counts`, and the check looks for `count`.",
    ),
    ("count", ["counts"], True, "You have written `counts`, and the check looks for `count`."),
    ("count", ["count"], True, "a cell"),
    ("other", ["othr"], True, "a cell"),
    ("couns", ["cout", "counts"], False, "There is no `couns`. Do you mean `counts`?"),
    ("coutn", [], False, "There is no `coutn`. Do you mean `count`?"),
    ("prnit", [], False, "There is no `prnit`. Do you mean `print`?"),
    ("abc", ["abd"], False, None),
    ("abce", ["abcd"], False, "There is no `abce`. Do you mean `abcd`?"),
    ("quite_another", [], False, None),
]


@pytest.mark.parametrize("name, known, is_made, title", NAMES)
def test_a_name_that_is_missing_is_explained(monkeypatch, shown, name, known, is_made, title):
    monkeypatch.setattr(restart, "explain", lambda *words: Card("a cell") if is_made else None)
    misspelt.explain(Shell(**dict.fromkeys(known)), NameError("no", name=name), "01")
    assert shown == ([Card(title)] if title else [])


def test_without_a_lesson_no_answer_is_looked_for(monkeypatch, shown):
    monkeypatch.setattr(restart, "explain", lambda *words: None)
    misspelt.explain(Shell(), NameError("no", name="coutn"), None)
    assert not [card for card in shown if "`count`" in card.title]


# A cell that cannot run

QUOTES = 'A text in this cell has only one of its two """'
CPP = "This looks like C++, and the cell is Python"
PLAIN = "Python cannot read this cell, so nothing of it has run"
FRAME = (
    "The text of exercise {} is between two lines of Python: it begins after "
    '`{} = r"""` and ends before a line with """ alone.'
)
GIVEN = (
    "\nUntil the cell runs, a check sees your answer from before. The cell as you were given "
    'it:\n  from lessons_guide.given import stub; stub("{}")'
)
MARK = (
    "The fault is at the mark ^, or a little before it. Often a bracket, a quote or a colon "
    "is missing, or a line is not as far to the right as its neighbours."
)
HALF = 'It begins with """ and ends with """. One of the two is missing.'
INTO = 'C++ goes into a Python text: r""" … """.'
OF_1_2 = FRAME.format("1.2", "free_list") + GIVEN.format("1.2")
SYNTAX = {
    "one quote": ('x = """', QUOTES, HALF),
    "one quote of three": ('"""a""" """', QUOTES, HALF),
    "one quote in Python": ('def count(): """', QUOTES, HALF + GIVEN.format("1.1")),
    "one quote in C++": ('free_list = r"""\nint x;', QUOTES, OF_1_2),
    "its end, by its class": ('class Stack {\n};\n"""', QUOTES, OF_1_2),
    "C++ alone": ("int x = 1;", CPP, INTO),
    "C++ of an exercise": ("class Stack {\n int x;\n};", CPP, OF_1_2),
    "C++ of a class in Python": ("class Counter {\n};", CPP, INTO),
    "C++ in quotes": ('x = r"""\nint x;\n""" +', PLAIN, MARK),
    "Python": ("x = (1", PLAIN, MARK),
    "a function": ("def count(x)", PLAIN, MARK + GIVEN.format("1.1")),
    "a variable": ("\ncount = (", PLAIN, MARK + GIVEN.format("1.1")),
    "a class": ("class count(", PLAIN, MARK + GIVEN.format("1.1")),
    "another name": ("counter = (", PLAIN, MARK),
    "a call": ("x = count(", PLAIN, MARK),
    "a name with a point": ("gather.rows = (", PLAIN, MARK + GIVEN.format("1.3")),
    "a point is no other letter": ("gather_rows = (", PLAIN, MARK),
}


@pytest.mark.parametrize("running, title, body", SYNTAX.values(), ids=SYNTAX)
def test_a_cell_that_is_no_python_is_explained(running, title, body):
    assert unfinished.explain(SyntaxError(), running, "01") == Card(title, body)


def test_without_a_lesson_a_cell_is_of_no_exercise():
    assert unfinished.explain(SyntaxError(), "def count(x)", None) == Card(PLAIN, MARK)


@pytest.mark.parametrize(
    "words, is_a_lessons, is_told",
    [
        ("", True, True),
        ("", False, False),
        ("own words", True, False),
        ("own words", False, False),
        ("Tensor-likes are not close!", True, True),
    ],
)
def test_a_lessons_assertion_without_own_words_is_explained(
    monkeypatch, words, is_a_lessons, is_told
):
    monkeypatch.setattr(restart, "is_a_lessons", lambda running, lesson: is_a_lessons)
    card = unfinished.explain(AssertionError(words), "assert x", "01")
    assert bool(card) is is_told
    assert not card or card.title == "What this cell expects of your answers is not so"


@pytest.mark.parametrize(
    "running, call",
    [
        ("check('1.1', count(3))", "'1.1', count"),
        ('x = 1\ncheck("1.1", count())', '"1.1", count'),
        ("check('1.1', count)", None),
        ("count(3)", None),
    ],
)
def test_an_answer_that_is_called_in_its_check_is_told(running, call):
    card = unfinished.explain(TypeError("no"), running, "01")
    words = f"Write `check({call})`, with nothing after the name."
    assert card == (call and Card("A check calls your answer itself", words))


@pytest.mark.parametrize(
    "words, number",
    [
        ("Exercise 1.5", "1.5"),
        ("Exercise 10.12 is not written yet", "10.12"),
        ("Exercise 1.5 is hard", None),
        ("no", None),
    ],
)
def test_a_cell_that_needs_an_answer_says_of_which_exercise(words, number):
    card = unfinished.explain(NotImplementedError(words), "f()", "01")
    assert card == (
        number
        and Card(
            f"Exercise {number} is not written yet, and this cell needs it",
            f"Write the answer into the cell of exercise {number} and {RUN_IT}. "
            "Then run this one again.",
        )
    )


# The page of progress


def test_a_bar_has_its_exercises_in_lines_or_in_one(course):
    course |= {"1.2": {"passed": True}, "1.3": {"passed": False}}
    head = "Lesson 01: 1 of 3 exercises passed"
    assert progress_page.bar("01", titles=False) == Card(head, "□ 1.1 · ■ 1.2 · □ 1.3")
    lines = "□ 1.1 the count\n■ 1.2 the free_list\n□ 1.3 the gather.rows"
    assert progress_page.bar("01", titles=True) == Card(head, lines)


@pytest.mark.usefixtures("plain_locale")
def test_a_lesson_has_the_title_of_its_notebook(monkeypatch, tmp_path):
    monkeypatch.setattr(progress_page, "NOTEBOOKS", tmp_path)
    cells = [{"source": ["# 01 · é\n", "Text"]}, {"source": ["# No"]}]
    text = json.dumps({"cells": cells}, ensure_ascii=False)
    (tmp_path / "01_a.ipynb").write_text(text, encoding="utf-8")
    (lesson,) = progress_page.page().lessons
    assert (lesson.title, lesson.notebook, lesson.num_passed) == ("01 · é", "01_a.ipynb", 0)
    assert [each.mark for each in lesson.exercises] == ["□"] * 3


def test_a_mistake_without_a_message_is_told_by_its_name(monkeypatch, course):
    mistake = SimpleNamespace(slug="off-by-one", message="It is one off. Look again.")
    monkeypatch.setitem(EXERCISES, "1.1", exercise("1.1", "count", mistakes=(mistake,)))
    course["1.1"] = {"passed": True, "mistakes": ["off-by-one", "wrong"]}
    (lesson,) = progress_page.page().lessons
    assert lesson.exercises[0].mistakes == (("off-by-one", "It is one off."), ("wrong", ""))
    assert lesson.num_passed == 1
