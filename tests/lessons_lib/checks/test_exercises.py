"""What an exercise has, and how it is found by its id."""

import pytest

from lessons_lib import checks


@pytest.mark.parametrize(
    "wanted, words",
    [("1.99", "1.1, 1.2, ")]
    + [
        (wanted, "of the form '1.2', in the lessons 00, 01, ")
        for wanted in ("99.1", "01.1", "1.01", "1.100")
    ],
)
def test_an_unknown_id_is_an_error_of_one_line(wanted, words):
    with pytest.raises(checks.NoSuchExercise) as caught:
        checks.find(wanted)
    (line,) = caught.value._render_traceback_()
    said = f"NoSuchExercise: There is no exercise '{wanted}'; the ids here are {words}"
    assert line.startswith(said)


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
