"""What learners see: cards, hints, solutions, progress.

And where the course keeps its files.
"""

import importlib.util
import json
import re
import sys
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell

from lessons_guide import given, misspelt
from lessons_lib import checks, progress, verbs
from lessons_lib.display import Card, as_html, show


def test_a_card_has_a_sign_for_its_tone():
    assert [repr(Card("Title", tone=tone)) for tone in ("passed", "failed", "note")] == [
        "✓ Title",
        "✗ Title",
        "› Title",
    ]
    assert repr(Card("Title", "one\n  two")) == "› Title\n  one\n    two"
    shown = [Card("Title", tone=tone)._repr_html_() for tone in ("passed", "failed", "note")]
    assert all("Title</div></div>" in one for one in shown)
    assert [re.search("solid (#[0-9a-f]{6});", one)[1] for one in shown] == [
        "#117733",
        "#b35900",
        "#3465a4",
    ]


@pytest.mark.parametrize(
    "body, shown",
    [
        ("a `b` c `d` e", "a <code>b</code> c <code>d</code> e"),
        ("`a`", "<code>a</code>"),
        ("no code", "no code"),
        ("one ` alone", "one ` alone"),
        ("a `b` and ` c", "a `b` and ` c"),
        ("``", "<code></code>"),
        ("`<`", "<code>&lt;</code>"),
    ],
)
def test_words_between_backticks_are_code(body, shown):
    assert as_html(body) == f'<div style="margin:.2em 0">{shown}</div>'


def test_lines_of_code_beside_each_other_are_one_block():
    def text(line):
        return f'<div style="margin:.2em 0">{line}</div>'

    def code(lines):
        style = "margin:.3em 0;white-space:pre-wrap;word-break:normal"
        return f'<pre style="{style}">{lines}</pre>'

    assert as_html("a\nb\n  c\n    d & `e`\n\nf\n  g") == text("a") + text("b") + code(
        "c\n  d &amp; `e`"
    ) + text("") + text("f") + code("g")


class Shell:
    """Of IPython, what `display` asks a running one for."""


def test_what_is_shown_is_printed_or_displayed_in_a_notebook(monkeypatch, capsys):
    import IPython
    import IPython.display

    displayed = []
    monkeypatch.setattr(IPython.display, "display", displayed.append)
    card = Card("Title")
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    show(card)
    assert capsys.readouterr().out == "› Title\n" and not displayed
    monkeypatch.setattr(IPython, "get_ipython", Shell)
    show(card)
    assert capsys.readouterr().out == "" and displayed == [card]
    monkeypatch.setitem(sys.modules, "IPython", None)  # it is not installed
    show(card)
    assert capsys.readouterr().out == "› Title\n" and displayed == [card]


def test_hints_can_be_asked_for_by_number_and_there_are_no_others(capsys):
    verbs._hints_shown.clear()
    hints = checks.find("1.2").hints
    for number in (2, 1, len(hints)):
        verbs.hint("1.2", number)
        assert capsys.readouterr().out.startswith(
            f"› Hint {number} of {len(hints)} for exercise 1.2\n  {hints[number - 1][:20]}"
        )
    for number in (0, -1, len(hints) + 1):
        verbs.hint("1.2", number)
        assert (
            capsys.readouterr().out
            == f"› Exercise 1.2 has hints 1 to {len(hints)}, and no other.\n"
            '  Our own answer: solution("1.2")\n'
        )
    verbs.hint("1.2"), verbs.hint("1.3"), verbs.hint("1.2")  # each exercise has its own count
    assert [
        line.split()[2] for line in capsys.readouterr().out.splitlines() if "› Hint" in line
    ] == ["1", "1", "2"]


def test_a_copy_without_solutions_shows_the_answer_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(given, "SOLUTIONS", tmp_path)
    verbs.solution("1.2")
    without = capsys.readouterr().out
    assert without.startswith("› One answer to exercise 1.2\n") and "throw" in without
    cells = [
        {"metadata": {}, "source": ["x"]},
        {"metadata": {"exercise": "1.3"}, "source": ["y"]},
    ]
    (tmp_path / "01_topic.ipynb").write_text(json.dumps({"cells": cells}))
    verbs.solution("1.2")
    assert capsys.readouterr().out == without
    verbs.solution("1.3")
    assert capsys.readouterr().out == "› One answer to exercise 1.3\n    y\n"


def test_a_solution_is_shown_without_the_markers(monkeypatch, tmp_path, capsys):
    cell = {
        "metadata": {"exercise": "1.2"},
        "source": [
            "# BEGIN SOLUTION 1.2\n",
            "def f():\n",
            "    pass\n",
            "# END SOLUTION\n",
            "é",
        ],
    }
    (tmp_path / "01_topic.ipynb").write_text(
        json.dumps({"cells": [cell]}, ensure_ascii=False), encoding="utf-8"
    )
    (tmp_path / "02_other.ipynb").write_text(
        json.dumps({"cells": [cell | {"source": ["no"]}]})
    )
    monkeypatch.setattr(given, "SOLUTIONS", tmp_path)
    verbs.solution("1.2")
    assert (
        capsys.readouterr().out
        == "› One answer to exercise 1.2\n    def f():\n        pass\n    é\n"
    )
    with pytest.raises(KeyError):
        verbs.solution("1.99")


def test_progress_is_a_square_for_each_exercise(monkeypatch, capsys):
    one, two, *others = checks.exercises_of("01")
    record = {one.id: {"passed": True}, two.id: {"passed": False}}
    monkeypatch.setattr(progress, "load", lambda: record)
    verbs.progress_bar("01")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"› Lesson 01: 1 of {2 + len(others)} exercises passed",
        f"  ■ {one.id} {one.title}",
        *(f"  □ {other.id} {other.title}" for other in (two, *others)),
    ]


def test_a_lesson_opens_with_its_pictures_and_a_line_of_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress, "load", lambda: {"5.2": {"passed": True}})
    pictures = verbs.open_lesson("05")
    head, line = capsys.readouterr().out.splitlines()
    assert head == f"› Lesson 05: 1 of {len(checks.exercises_of('05'))} exercises passed"
    assert line.startswith("  □ 5.1 · ■ 5.2 · □ 5.3")
    assert pictures.__name__ == "lessons_draw.lesson_05" and callable(pictures.opening)


def test_the_summary_opens_without_progress(capsys):
    assert callable(verbs.open_lesson("summary").opening)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["torch", "transformers", "lessons_exercises"])
def test_a_lesson_says_what_is_missing_and_what_to_do(monkeypatch, name):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted: None if wanted == name else found(wanted)
    )
    with pytest.raises(ModuleNotFoundError) as caught:
        verbs.open_lesson("05")
    assert str(caught.value) == (
        f"No module named '{name}'. Close this, and open the course with: make lab"
    )


def test_a_lesson_says_where_a_teachers_mistakes_cannot_be_read(monkeypatch, tmp_path):
    (tmp_path / "0.1.mistakes").write_text("## mine\nMine.\n\n    nothing => something\n")
    monkeypatch.setenv("LESSONS_MISTAKES", str(tmp_path))
    # whatever another test of this process has read already
    monkeypatch.delitem(vars(checks.find("0.1").mistakes), "further", raising=False)
    with pytest.raises(ValueError, match="0.1.mistakes:4: `nothing` is not in our answer"):
        verbs.open_lesson("00")


def test_an_answer_with_a_misspelt_name_is_found(capsys):
    shell = InteractiveShell()
    with mock.patch("IPython.get_ipython", lambda: shell):
        misspelt.watch("00")
    shell.run_cell("def block_needed(n, size): return n")
    shell.run_cell("blocks_needed")
    out = capsys.readouterr().out
    assert "NameError" in out
    assert out.endswith(
        "› You have written `block_needed`, and the check looks for `blocks_needed`.\n"
    )
    shell.run_cell("nothing_like_it")
    assert "You have written" not in capsys.readouterr().out


def test_a_lesson_that_does_not_exist_is_named():
    with pytest.raises(ModuleNotFoundError, match="lessons_draw.lesson_77"):
        verbs.open_lesson("77")


def test_a_name_in_backticks_is_code_in_a_title_too():
    shown = Card("There is no `gorw` <b>")._repr_html_()
    assert "There is no <code>gorw</code> &lt;b&gt;" in shown
