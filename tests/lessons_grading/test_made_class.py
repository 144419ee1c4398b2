"""A class whose grades are known before: they are what comes out."""

import json
from collections import Counter

import pytest

from graded import needs_sandbox
from lessons_grading import command
from lessons_lib import checks
from made_class import ANY, KINDS, Answers, Expected, differences, make_class


@pytest.mark.parametrize("lesson", ["00", pytest.param("02", marks=pytest.mark.slow)])
def test_answers_are_complete_texts_and_graded_as_expected(lesson):
    """A few of each kind, by the check of the notebook."""
    for exercise in checks.exercises_of(lesson):
        answers = Answers(exercise)
        assert len(answers.right) >= 2 and len(answers.mistaken) >= 3
        for answer in [*answers.right[::5], *answers.mistaken[::20]]:
            scope = {"__name__": "answer"}
            exec(answer.text, scope)
            result = checks.run(exercise.id, scope[exercise.answer_name])
            assert (result.passed, result.mistake) == (answer.mistake is None, answer.mistake)


def test_a_seed_makes_the_same_class_with_all_kinds(tmp_path):
    made = [make_class(tmp_path / name, 100, seed=3) for name in "ab"]
    assert made[0] == made[1] != make_class(tmp_path / "c", 100, seed=4)
    assert {each.kind for each in made[0].values()} == {*KINDS}
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert len({file.read_text() for file in (tmp_path / "a").iterdir()}) > 90
    alike = make_class(tmp_path / "alike", 100, alike=1.0)
    texts = Counter(file.read_text() for file in (tmp_path / "alike").iterdir())
    assert len(alike) == 100 and max(texts.values()) > 1


def test_each_difference_is_told():
    expected = {
        "right": Expected("right", {"0.1": None}),
        "mutant": Expected("mutant", {"0.1": ANY}),
        "named": Expected("mistake", {"0.1": "negative"}),
        "gone": Expected("right", {"0.1": None}),
        "hostile": Expected("hostile", {"0.1": None}, "crashed in"),
    }

    def grade(student, mistake, *events):
        return {
            "student": student,
            "exercises": [{"exercise": "0.1", "mistake": mistake}],
            "events": events,
        }

    came = [
        grade("right", None),
        grade("mutant", "negative"),
        grade("named", "negative"),
        grade("gone", None),
        grade("hostile", None, "the process crashed in cell 1"),
    ]
    assert differences(expected, came) == []
    came = [
        grade("right", "wrong"),
        grade("mutant", None),
        grade("named", "wrong"),
        grade("hostile", None),
    ]
    assert differences(expected, came) == [
        "right (right): 0.1 is wrong, and None was expected",
        "mutant (mutant): 0.1 is None, and any was expected",
        "named (mistake): 0.1 is wrong, and negative was expected",
        "hostile: no event says 'crashed in'",
        "gone has no grade",
    ]


@pytest.mark.slow(nightly=True)
@pytest.mark.sampled
@needs_sandbox
@pytest.mark.parametrize("lesson, students", [("00", 60), ("02", 12)])
def test_the_grades_that_were_predicted_come_out(tmp_path, lesson, students):
    expected = make_class(tmp_path / "class", students, lesson, alike=0.2)
    assert command.main([str(tmp_path / "class"), "--seed", "1"]) == 0
    data = json.loads((tmp_path / "results" / "results.json").read_text())
    assert differences(expected, data["submissions"]) == []
