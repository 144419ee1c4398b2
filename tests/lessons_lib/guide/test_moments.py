"""A pass says what the learner can do now, and what is next, once. A lesson ends with what
was built.
"""

import json
from pathlib import Path

import pytest

from lessons_lib import checks, notebook_api
from lessons_lib.checks import progress
from lessons_lib.guide import moments
from lessons_lib.paths import NOTEBOOKS

pytestmark = pytest.mark.usefixtures("learner")
LONGEST = 105  # characters


def shown_by_a_pass(capsys) -> str:
    notebook_api.check("0.1", lambda num_tokens, block_size: -(-num_tokens // block_size))
    return capsys.readouterr().out


def test_the_first_pass_says_what_is_next_and_later_ones_say_nothing(capsys):
    progress.remember("0.1", False, "floor-division")
    first = shown_by_a_pass(capsys)
    assert first == (
        "✓ Exercise 0.1, blocks needed: passed\n"
        f"  {moments.lines()['0.1']} Next: lesson 01 · The block manager.\n"
        "✓ 00 · Start here: all exercises passed\n"
        f"  {moments.lines()['00']}\n"
        "  You met 1 slip on the way. The most tries went into 0.1, blocks needed: 2.\n"
    )
    assert shown_by_a_pass(capsys) == "✓ Exercise 0.1, blocks needed: passed\n"


def test_where_nothing_can_be_remembered_a_pass_is_a_pass(capsys, learner):
    (learner / "progress.json").mkdir()
    assert "Next: lesson 01" in shown_by_a_pass(capsys)


def test_next_is_what_follows_in_the_lesson_and_then_what_was_left_out():
    for exercise in ("2.2", "2.3", "2.4", "2.5", "2.7"):
        progress.remember(exercise, True, None)
    assert moments.after_exercise("2.7").endswith("Next: 2.1, pieces of memory.")
    progress.remember("2.1", True, None)
    assert "Next: 2.6, " in moments.after_exercise("2.1")
    assert moments.after_lesson("2.1") is None


def test_a_lesson_without_a_slip_and_the_end_of_the_course():
    for exercise in checks.exercises_of("11"):
        progress.remember(exercise.id, True, None)
    assert moments.after_exercise("11.2").endswith("Next: the summary.")
    assert moments.after_lesson("11.2").body.endswith("You met no slips on the way.")


def test_each_exercise_and_each_lesson_has_its_line_in_the_order_of_the_notebooks():
    """One that a card shows in one line."""
    expected = []
    for lesson in checks.lessons():
        (path,) = Path(NOTEBOOKS).glob(f"{lesson}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        ids = [
            cell["metadata"]["exercise"] for cell in cells if "exercise" in cell["metadata"]
        ]
        expected += [*ids, lesson]
        for exercise in ids:
            progress.remember(exercise, True, None)
            assert len(moments.after_exercise(exercise)) <= LONGEST
    assert list(moments.lines()) == expected
