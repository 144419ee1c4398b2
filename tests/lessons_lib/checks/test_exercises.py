"""What an exercise has, and how it is found by its id."""

from dataclasses import replace

import pytest

from doubling import DOUBLES
from lessons_lib import checks
from lessons_lib.checks import Form


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


def test_lessons_and_their_exercises_are_in_the_order_of_their_numbers():
    numbers = checks.lessons()
    assert numbers[:3] == ("00", "01", "02") and [*numbers] == sorted(numbers)
    for number in numbers:
        ids = [exercise.id.split(".") for exercise in checks.exercises_of(number)]
        assert ids == [[str(int(number)), str(each)] for each in range(1, len(ids) + 1)]
