"""What an exercise has, and how it is found by its id."""

import types
from dataclasses import replace

import pytest

from doubling import DOUBLES
from lessons_lib import checks
from lessons_lib.checks import Failure, Form, Raised


def test_what_an_exercise_has_if_nothing_else_is_given():
    assert (DOUBLES.language, DOUBLES.points, DOUBLES.time_limit) == ("python", 1, 5.0)
    assert DOUBLES.describe("case") == "'case'" and DOUBLES.show(1, "2") == ("1", "'2'")
    assert DOUBLES.same(1, 1.0) and not DOUBLES.same(1, 2)
    assert DOUBLES.chancy(1) is False and DOUBLES.is_given("text") is False
    assert DOUBLES.recognise("text") is None and DOUBLES.name_from_text("text") is None
    assert DOUBLES.prepare("answer") == "answer" and DOUBLES.arrange("case") == "case"
    assert DOUBLES.hidden(1) == () and DOUBLES.mistakes[0].also == ()
    failure = Failure(0, "1", "2")
    assert (failure.where, failure.suspects) == ("", ()) and Raised("error").where == ""


def test_a_form_has_no_record_of_its_own_and_is_compared_by_the_exercise():
    class Unrecorded(Form):
        pass

    assert Unrecorded().record(0) is None
    assert Unrecorded().gives(lambda recorded, actual: recorded < actual, 1, 2)
    with pytest.raises(NotImplementedError):
        Unrecorded().load()


def test_cases_come_smallest_first_and_those_of_chance_last():
    assert DOUBLES.in_order([3, 1, 2]) == [1, 2, 3]
    assert replace(DOUBLES, chancy=lambda x: x < 3).in_order([2, 3, 1]) == [3, 2, 1]


@pytest.mark.parametrize(
    "wanted, words",
    [
        ("1.99", "There is no exercise '1.99'; the ids here are 1.1, 1.2, "),
        (
            "99.1",
            "There is no exercise '99.1'; the ids here are of the form '1.2', in the lessons ",
        ),
        ("01.1", "There is no exercise '01.1'; the ids here are of the form '1.2', in the"),
        ("1.01", "There is no exercise '1.01'; the ids here are of the form '1.2', in the"),
        ("1.100", "There is no exercise '1.100'; the ids here are of the form '1.2', in the"),
    ],
)
def test_an_unknown_id_is_an_error_of_one_line(wanted, words):
    with pytest.raises(checks.NoSuchExercise) as caught:
        checks.find(wanted)
    (line,) = caught.value._render_traceback_()
    assert line.startswith(f"NoSuchExercise: {words}")
    assert (", in the lessons 00, 01, " in line) == ("of the form" in line)


def test_an_id_may_come_as_a_number():
    assert checks.find(1.2).id == "1.2"
    assert [exercise.id for exercise in checks.exercises_of(10)][:2] == ["10.1", "10.2"]
    assert [exercise.id for exercise in checks.exercises_of("01")][:2] == ["1.1", "1.2"]
    assert checks.exercises_of("1.7") == checks.exercises_of("1")
    assert checks.exercises_of("summary") == () and checks.exercises_of("100") == ()


def test_exercises_are_in_the_order_of_their_numbers(monkeypatch, tmp_path):
    folder = tmp_path / "lessons_exercises/lesson_03"
    folder.mkdir(parents=True)
    for name in "e3_10_c", "e3_9_b", "e3_1_a", "shared":
        (folder / f"{name}.py").touch()
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    names = [name.rpartition(".")[2] for name in checks._modules("3")]
    assert names == ["e3_1_a", "e3_9_b", "e3_10_c"]
    assert checks._modules("3", "9") == ["lessons_exercises.lesson_03.e3_9_b"]


def test_lessons_are_named_by_two_digits():
    assert checks.lessons()[:3] == ("00", "01", "02")


@pytest.mark.parametrize(
    "sizes, words",
    [
        ({"1.1": 2, "1.3": 1}, "2 for 1.1, 1 for 1.3"),
        ({}, "none for this lesson"),
    ],
)
def test_a_teachers_own_mistakes_are_counted(monkeypatch, capsys, sizes, words):
    class Mistakes(tuple):
        further = ()

    def with_further(exercise_id):
        mistakes = Mistakes()
        mistakes.further = range(sizes.get(exercise_id, 0))
        return types.SimpleNamespace(id=exercise_id, mistakes=mistakes)

    monkeypatch.setattr(checks, "mistakes_folder", lambda: "/home/teacher/mistakes")
    monkeypatch.setattr(
        checks, "exercises_of", lambda lesson: [*map(with_further, ("1.1", "1.2", "1.3"))]
    )
    checks.read_mistakes(["01"])
    assert (
        capsys.readouterr().out == f"Further mistakes from /home/teacher/mistakes: {words}\n"
    )


def test_without_a_teachers_mistakes_nothing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(checks, "mistakes_folder", lambda: None)
    checks.read_mistakes(["01"])
    assert capsys.readouterr().out == ""
