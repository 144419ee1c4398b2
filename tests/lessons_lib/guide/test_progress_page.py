"""Progress over all lessons: what is passed, what is next, and which mistakes were met."""

import re

import pytest

from lessons_lib import checks, progress_bar, show_progress
from lessons_lib.checks import progress
from lessons_lib.guide import progress_page
from lessons_lib.guide.progress_page import ExerciseState, LessonState, ProgressPage

TOTAL = sum(len(checks.exercises_of(lesson)) for lesson in checks.lessons())


pytestmark = pytest.mark.usefixtures("learner")


def test_all_lessons_are_there_by_their_names_before_anything_is_done():
    page = progress_page.page()
    assert page.title == f"0 of {TOTAL} exercises passed"
    assert page.next_step == "Next: exercise 0.1, blocks needed"
    assert [lesson.title[:2] for lesson in page.lessons] == list(checks.lessons())
    assert page.lessons[1].title == "01 · The block manager"
    assert 'href="01_block_manager.ipynb"' in page._repr_html_()
    assert "met in" not in repr(page) and "<details" not in page._repr_html_()


def test_what_is_passed_and_which_mistakes_were_met(capsys):
    progress.remember("0.1", True, None)
    progress.remember("1.1", False, "pop-does-not-remove")
    progress.remember("1.1", False, "wrong")
    progress.remember("1.1", True, None)
    show_progress()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        f"› 2 of {TOTAL} exercises passed",
        f"  Next: exercise 1.2, {checks.find('1.2').title}",
        "  00 · Start here: ■ 0.1",
        "  01 · The block manager: ■ 1.1 □ 1.2 □ 1.3 □ 1.4 □ 1.5 □ 1.6 □ 1.7",
        "    met in 1.1: pop-does-not-remove, wrong",
    ]
    page = progress_page.page()._repr_html_()
    (met,) = re.findall(r"<details><summary>2</summary>(.*?)</details>", page)
    message = next(m.message for m in checks.find("1.1").mistakes if m.slug in met)
    first = re.split(r"(?<=[.?!]) ", message)[0]
    assert "1.1 <code>pop-does-not-remove</code>: " in met and first.split("`")[0] in met
    assert "1.1 <code>wrong</code></div>" in met  # has no message of its own


def test_at_the_end_nothing_is_next():
    for lesson in checks.lessons():
        for exercise in checks.exercises_of(lesson):
            progress.remember(exercise.id, True, None)
    page = progress_page.page()
    assert page.title == f"{TOTAL} of {TOTAL} exercises passed"
    assert page.next_step == "All exercises are passed."


def test_a_record_of_an_exercise_that_is_gone_is_left_out():
    progress.remember("1.99", True, "whatever")
    assert progress_page.page().title == f"0 of {TOTAL} exercises passed"


def test_no_text_is_taken_for_html():
    exercise = ExerciseState("1.1", "a <b>", False, (("<i>", "A & `b<c`."),))
    page = ProgressPage((LessonState("<01>", "", (exercise,)),))._repr_html_()
    assert "<b>" not in page and "<i>" not in page and "<01>" not in page
    assert "&lt;i&gt;" in page and "A &amp; <code>b&lt;c</code>." in page and "<a " not in page


@pytest.mark.parametrize("text", [None, "", "[]", '{"cells": []}', '{"cells": [{}]}'])
def test_a_notebook_that_cannot_be_read_is_named_by_its_file(tmp_path, monkeypatch, text):
    monkeypatch.setattr(progress_page, "NOTEBOOKS", tmp_path)
    if text is not None:
        (tmp_path / "01_topic.ipynb").write_text(text)
    expected = ("01_topic", "01_topic.ipynb") if text is not None else ("01", "")
    lesson = progress_page.page().lessons[1]
    assert (lesson.title, lesson.notebook) == expected


def test_exercises_come_as_in_the_lesson(capsys):
    """In lesson 02 the first is the last: it is about the pool."""
    progress_bar("02", titles=False)
    assert capsys.readouterr().out.split("\n")[1].split(" □ ")[-1] == "2.1"


def test_a_bar_has_each_exercise_in_a_line(capsys):
    one, two, *others = checks.exercises_of("01")
    progress.remember(one.id, True, None)
    progress.remember(two.id, False, None)
    head = f"› Lesson 01: 1 of {2 + len(others)} exercises passed"
    progress_bar("01")
    lines = [f"  ■ {one.id} {one.title}"]
    lines += [f"  □ {other.id} {other.title}" for other in (two, *others)]
    assert capsys.readouterr().out.splitlines() == [head, *lines]
