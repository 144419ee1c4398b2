"""What the page of a class counts and in which order, what belongs to a student, and the form
of the files.
"""

import json

import jinja2
import msgspec
import pytest
from msgspec.structs import replace

from lessons_grading import pages
from lessons_grading.grades import ExerciseGrade, SubmissionGrade, in_order
from lessons_grading.hidden_cases import NEW_CASE
from lessons_grading.pages import write_report
from lessons_grading.students import (
    ClassNumbers,
    Group,
    Student,
    students_of,
    way_of,
)
from reported import Page, entry, submission, wrong


def numbers_of(*grades: SubmissionGrade) -> ClassNumbers:
    numbers = ClassNumbers()
    for student in students_of(grades):
        numbers.add(student)
    return numbers


def held_up(*entries: ExerciseGrade) -> list[Group]:
    """What holds up a class in which each of these is a student's only answer."""
    return numbers_of(
        *(submission(f"s{number}", each) for number, each in enumerate(entries))
    ).mistakes


def test_an_empty_class_counts_nothing():
    numbers = ClassNumbers()
    counts = "submissions", "open", "repeats", "tried", "repeated"
    assert [getattr(numbers, name) for name in counts] == [0] * 5
    lists = "rows", "looked_at", "lessons", "exercises", "mistakes"
    assert [getattr(numbers, name) for name in lists] == [[]] * 5


def test_each_submission_counts():
    ada = submission("ada", entry("2.1"))
    numbers = numbers_of(
        replace(ada, is_final=False, tried=3, repeated=1),
        replace(ada, is_repeat=True),
        replace(submission("bob", entry("2.1")), is_repeat=True, tried=2, repeated=4),
        replace(submission("cleo", entry("2.1")), is_final=False),
        submission("dan", entry("2.1")),
    )
    assert (numbers.submissions, numbers.open, numbers.repeats) == (5, 2, 2)
    assert (numbers.tried, numbers.repeated) == (5, 5)
    assert [row.name for row in numbers.rows] == ["ada", "bob", "cleo", "dan"]


def test_a_grade_is_final_and_of_its_own_unless_it_says_so():
    numbers = numbers_of(submission("ada", entry("2.1")))
    assert (numbers.open, numbers.repeats, numbers.tried, numbers.repeated) == (0, 0, 0, 0)


def test_a_row_has_the_points_of_each_lesson():
    (row,) = numbers_of(
        submission("ada", entry("0.1"), lesson="00"),
        submission("ada", entry("2.1"), entry("2.5"), entry("2.2", "missing")),
    ).rows
    assert row.name == "ada" and row.page == "ada.html"
    assert row.scores == {
        "00": {"earned": 1, "points": 1},
        "02": {"earned": 3, "points": 4},
    }
    assert row.total == {"earned": 4, "points": 5}


def test_exercises_are_in_order_of_their_numbers_with_who_passed_them():
    ten = replace(entry("10.1"), title="ten")
    numbers = numbers_of(
        submission("ada", ten, lesson="10"),
        submission("ada", entry("2.1"), entry("2.2", "wrong")),
        submission("bob", entry("2.1", "missing"), entry("2.2", "missing")),
        submission("cleo", entry("2.1")),
    )
    assert numbers.lessons == ["02", "10"]
    assert [
        (numbers.titles[each], numbers.passed[each], numbers.handed_in[each])
        for each in numbers.exercises
    ] == [("pieces of memory", 2, 3), ("slots", 0, 2), ("ten", 1, 1)]


def test_a_notebook_is_looked_at_for_what_happened_besides_errors_of_cells():
    events = ["cell 3 raised NameError: x", "it ran without a sandbox", "cell 7 was stopped"]
    numbers = numbers_of(
        submission("ada", entry("2.1"), events=events),
        submission("bob", entry("2.1"), events=events[:2]),
    )
    assert numbers.looked_at == [("ada", "02.ipynb", ["cell 7 was stopped"])]


def shown(group: Group) -> tuple:
    names = [each.name for each in group.examples]
    return group.count, group.alike, group.way, names


def test_answers_that_fail_alike_are_a_group():
    (group,) = held_up(wrong(5), wrong(5), entry("2.2"))
    assert shown(group) == (2, 2, way_of(wrong(5)), ["s0", "s1"])
    assert not group.has_name


def test_an_answer_that_fails_alone_has_its_way_and_several_share_a_row_without_one():
    assert list(map(shown, held_up(wrong(5)))) == [(1, 1, way_of(wrong(5)), ["s0"])]
    assert list(map(shown, held_up(wrong(5), wrong(6)))) == [(2, 1, "", ["s0", "s1"])]
    names = ["s0", "s1", "s2", "s3", "s4"]
    assert list(map(shown, held_up(*map(wrong, range(7))))) == [(7, 1, "", names)]


def test_answers_that_fail_alone_are_apart_by_exercise_and_by_how_they_end():
    groups = held_up(wrong(1), wrong(2, slug="crashed"), entry("2.1", "wrong", "got: 1"))
    assert [(each.exercise, each.slug, each.count) for each in groups] == [
        ("2.1", "wrong", 1),
        ("2.2", "crashed", 1),
        ("2.2", "wrong", 1),
    ]


def test_a_named_mistake_is_one_group_whatever_its_cases():
    named = [entry("2.2", "offset", f"You add all.\ngot: {number}") for number in range(2)]
    for entries, names in ((named, ["s0", "s1"]), (named[:1], ["s0"])):
        (group,) = held_up(*entries)
        assert shown(group) == (len(names), len(names), "You add all.", names)
        assert group.has_name


def test_rows_are_in_order_of_how_many_fail_alike_then_of_the_exercises():
    rows = held_up(
        entry("2.1", "missing"),
        entry("10.1", "wrong", "got: 1"),
        entry("2.3", "offset", "You add all."),
        entry("2.3", "crashed", "It crashed."),
        entry("2.1", "not-attempted"),
        *map(wrong, (7, 8)),
        entry("10.1", "offset", "You add all."),
        entry("10.1", "offset", "You add all."),
    )
    assert [(row.exercise, row.slug) for row in rows] == [
        ("10.1", "offset"),
        ("2.2", "wrong"),
        ("2.3", "crashed"),
        ("2.3", "offset"),
        ("10.1", "wrong"),
        ("2.1", "missing"),
        ("2.1", "not-attempted"),
    ]


WAYS = {  # the mistake, the message, and what of it is the same for all
    "a case": ("wrong", "The result is not right.\n\ngot: 3\n", "got: 3"),
    "printed": ("wrong", "got: 3\nYour code printed:\nx\nYour code printed:\ny", "got: 3"),
    "a line": ("exited", "line 7, outline 8, line 12", "a line, outline 8, a line"),
    "a further case": ("crashed", f"{NEW_CASE}\nIt crashed.", "It crashed."),
    "a named one": ("offset", f"{NEW_CASE}\nYou add all.\nline 7", "You add all."),
}


@pytest.mark.parametrize("mistake, message, way", WAYS.values(), ids=WAYS)
def test_the_way_an_answer_fails(mistake, message, way):
    assert way_of(entry("2.2", mistake, message)) == way


def test_a_group_keeps_its_name_from_run_to_run():
    assert Group("2.5", "wrong", "got: 3").name == "2.5-e521fd13aad8"
    assert Group("2.5", "wrong", "got: \ud800").name != Group("2.5", "wrong", "got: x").name


def test_a_page_keeps_its_name_from_run_to_run():
    assert Student("a/b", ()).page == "a_b.html"
    assert Student("a" * 251, ()).page == f"{'a' * 200}772f911dd9d66928.html"
    assert Student("ü" * 126, ()).page == f"{'ü' * 100}6ba13d4e3d30cf45.html"


def test_a_students_exercises_are_in_order_of_their_numbers():
    grades = tuple(
        submission(
            "ada", *(replace(entry("2.1"), exercise=each) for each in names), lesson=lesson
        )
        for lesson, names in {"10": ["10.1"], "02": ["2.10", "2.9", "2.1"]}.items()
    )
    student = Student("ada", grades)
    assert [each.exercise for each in student.exercises] == ["2.1", "2.9", "2.10", "10.1"]


def test_grades_are_sorted_by_student_without_capitals_then_by_lesson_and_notebook():
    grades = [
        submission("Ada", lesson=None),
        submission("Ada", lesson="01", notebook="b"),
        submission("Ada", lesson="02", notebook="a"),
        submission("ada", lesson="00"),
        submission("Bob", lesson="00"),
        submission("bob", lesson="00", notebook="a"),
        submission("bob", lesson="00", notebook="b"),
        submission("cleo", lesson="00"),
    ]
    assert sorted(reversed(grades), key=in_order) == grades


def test_each_value_of_the_json_has_a_line_so_that_two_runs_can_be_compared(tmp_path):
    grades = [submission("ada", entry("2.1")), submission("bob", entry("2.2", "wrong", "No."))]
    write_report(tmp_path, grades, seed=3, sandboxed=True, limited_by="systemd")
    head = '{\n "seed": 3,\n "sandboxed": true,\n "limits_kept_by": "systemd",\n'
    each = ",\n".join(json.dumps(msgspec.to_builtins(grade), indent=1) for grade in grades)
    text = (tmp_path / "results.json").read_text()
    assert text == f'{head} "submissions": [\n{each}\n]}}\n'


def test_the_page_of_a_class_which_may_be_large_has_no_empty_lines(tmp_path):
    grades = [submission("ada", entry("2.1"), wrong(5)), submission("bob", events=["late"])]
    write_report(tmp_path, grades, seed=3, sandboxed=True)
    assert "\n\n" not in (tmp_path / "class.html").read_text().split("<body>\n")[1]


@pytest.mark.parametrize("page", ["class.html", "student.html"])
def test_a_page_without_one_of_its_values_is_an_error(page):
    values = {"numbers": ClassNumbers(), "student": Student("ada", ())}
    assert "<h1>" in pages._page(page, **values, sandboxed=True)
    with pytest.raises(jinja2.UndefinedError):
        pages._page(page, **values)


def test_a_row_without_an_exercise_has_no_points(tmp_path):
    write_report(tmp_path, [submission("ada", lesson=None)], seed=3, sandboxed=True)
    table = (tmp_path / "results.csv").read_text().splitlines()
    assert table[1:] == ["ada,02.ipynb,,,,0,0,False,unreadable,1.50"]
    write_report(tmp_path, [submission("ada", entry("2.1"))], seed=3, sandboxed=True)
    table = (tmp_path / "results.csv").read_text().splitlines()
    assert table[1:] == ["ada,02.ipynb,02,2.1,pieces of memory,1,1,True,,0.25"]


def test_a_page_without_repeats_says_nothing_of_them(tmp_path):
    ada, bob = (submission(name, entry("2.1")) for name in ("ada", "bob"))
    write_report(tmp_path, [ada, bob], seed=3, sandboxed=True)
    assert "Work that repeats" not in Page(tmp_path / "class.html").text
    bob = replace(bob, is_repeat=True)
    write_report(tmp_path, [ada, bob], seed=3, sandboxed=True)
    assert "1 notebook has the same code as another one" in Page(tmp_path / "class.html").text
