"""Notebooks with the same code get one grade, with a stand-in for what grades them."""

import json
from dataclasses import replace

import pytest

from graded import hand_in
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Cell, Notebook, read_notebook
from lessons_grading.deduplicate import code_of, grade_once
from lessons_grading.store import FILE, GradeStore
from lessons_grading.submissions import Submission

OF_LESSON_00 = "check('0.1', blocks_needed)"
EXERCISES = (ExerciseGrade("0.1", "blocks needed", 1, 1, True, None, "", 0.1),)


def test_the_code_is_all_that_a_grade_depends_on():
    def code(*cells, lesson="00", problem=""):
        return code_of(Notebook("a digest", lesson, tuple(cells), problem))

    cells = Cell(1, "x"), Cell(3, "y")
    assert code(*cells) == code(*cells)
    others = [
        code(*cells, lesson="01"),
        code(*reversed(cells)),
        code(Cell(1, "x"), Cell(2, "y")),
        code(Cell(1, "x"), Cell(3, "y "), lesson="00"),
        code(Cell(1, "x")),
    ]
    assert len({code(*cells), *others}) == 1 + len(others)
    assert code(problem="this is not a notebook") == ""


class Class:
    """Students, each with a notebook, and a grader that notes whose notebooks it gets.

    rounds: the students of each call of the grader.
    fails: the students whose grade is not final.
    changes: the students whose file changes before the grader reads it.
    """

    def __init__(self, folder):
        self.root, self.rounds, self.fails, self.changes = folder, [], (), ()
        self.folder = folder / "class"
        self.folder.mkdir()
        self.submissions = []

    def hand_in(self, **cells: str):
        """The notebook of each has bytes of its own, even where the cell is another's."""
        for student, cell in cells.items():
            path = hand_in(self.folder, cell, OF_LESSON_00, name=f"{student}.ipynb")
            content = json.loads(path.read_text()) | {"metadata": {"author": student}}
            path.write_text(json.dumps(content))
            self.submissions.append(Submission(student, path))

    def grade(self, some):
        self.rounds.append([each.student for each in some])
        for each in some:
            if each.problem:
                yield each, each.without_points(each.problem)
                continue
            if each.student in self.changes:
                hand_in(
                    self.folder, f"new of {each.student}", OF_LESSON_00, name=each.path.name
                )
            notebook = read_notebook(each.path)
            found = SubmissionGrade(
                *(each.student, each.path.name, notebook.digest, "00", EXERCISES),
                *((f"graded for {each.student}",), 0.5),
                tried=3,
                repeated=2,
            )
            fails = each.student in self.fails
            yield each, replace(found, is_final=False, digest="") if fails else found

    def run(self, look_back=True, terms="") -> dict[str, SubmissionGrade]:
        """The grades by student. Those that are passed on are also those that are kept."""
        self.rounds.clear()
        with GradeStore(self.root / FILE, terms, self.folder) as store:
            passed_on = [*grade_once(self.submissions, self.grade, store, look_back)]
            kept = {grade.student: grade for grade in store.grades()}
        assert all(each.student == grade.student for each, grade in passed_on)
        grades = {grade.student: grade for _, grade in passed_on}
        assert kept == grades and len(passed_on) == len(grades)
        return grades


@pytest.fixture
def students(tmp_path):
    return Class(tmp_path)


def graded_for(grades: dict[str, SubmissionGrade]) -> dict[str, str]:
    """For which student each one's notebook was graded."""
    return {
        name: "".join(grade.events).removeprefix("graded for ")
        for name, grade in grades.items()
    }


def test_of_notebooks_with_the_same_code_the_first_is_graded(students):
    students.hand_in(ada="x", bob="x", eve="y", joe="x")
    grades = students.run()
    assert students.rounds == [["ada", "eve"]]
    assert graded_for(grades) == {"ada": "ada", "bob": "ada", "eve": "eve", "joe": "ada"}
    own, copy = grades["ada"], grades["joe"]
    assert (own.is_repeat, own.seconds, own.tried, own.repeated) == (False, 0.5, 3, 2)
    assert copy == replace(
        own,
        student="joe",
        notebook="joe.ipynb",
        digest=read_notebook(students.folder / "joe.ipynb").digest,
        seconds=0.0,
        is_repeat=True,
        tried=0,
        repeated=0,
    )


def test_a_grade_of_an_earlier_run_is_taken_over(students):
    students.hand_in(ada="x")
    students.run()
    students.hand_in(bob="x", eve="y")
    grades = students.run()
    assert students.rounds == [["eve"]]
    assert graded_for(grades) == {"ada": "ada", "bob": "ada", "eve": "eve"}
    assert grades["bob"].is_repeat and grades["bob"].notebook == "bob.ipynb"
    assert grades["bob"].digest == read_notebook(students.folder / "bob.ipynb").digest


def test_the_grade_of_a_copy_is_taken_over_too(students):
    students.hand_in(ada="x", bob="x")
    students.run()
    del students.submissions[0]
    students.hand_in(ada="y")
    with GradeStore(students.root / FILE, "", students.folder) as store:
        store._database.execute("DELETE FROM grades WHERE student = 'ada'")
    students.run()
    assert students.rounds == [["ada"]]


@pytest.mark.parametrize("look_back, terms", [(False, ""), (True, "another seed")])
def test_everything_is_graded_again_if_asked_or_under_other_terms(students, look_back, terms):
    students.hand_in(ada="x", bob="x")
    students.run()
    assert graded_for(students.run(look_back, terms)) == {"ada": "ada", "bob": "ada"}
    assert students.rounds == [["ada"]]


def test_what_has_no_code_is_no_repeat(students):
    students.hand_in(ada="x", bob="x", eve="x")
    for name in ("ada", "bob"):
        (students.folder / f"{name}.ipynb").write_text("no notebook")
    students.submissions.insert(0, Submission("joe", students.folder, "nothing is there"))
    grades = students.run()
    assert students.rounds == [["joe", "ada", "bob", "eve"]]
    assert grades["joe"].events == ("nothing is there",)
    students.run()
    assert students.rounds == [["joe", "ada", "bob"]]


def test_without_a_final_grade_another_one_is_tried_before_it_counts_for_all(students):
    students.hand_in(ada="x", bob="x", eve="x", joe="x")
    students.fails = ("ada", "bob")
    grades = students.run()
    assert students.rounds == [["ada"], ["bob"]]
    assert graded_for(grades) == {"ada": "ada", "bob": "bob", "eve": "bob", "joe": "bob"}
    assert grades["eve"].is_repeat and grades["eve"].digest == ""
    assert not any(grade.is_final for grade in grades.values())
    students.fails = ()
    students.run()
    assert students.rounds == [["ada"]]  # none of these grades is taken over


def test_another_one_that_has_a_final_grade_gives_it_to_the_others(students):
    students.hand_in(ada="x", bob="x", eve="x")
    students.fails = ("ada",)
    grades = students.run()
    assert students.rounds == [["ada"], ["bob"]]
    assert graded_for(grades) == {"ada": "ada", "bob": "bob", "eve": "bob"}
    assert [grades[name].is_final for name in ("ada", "bob", "eve")] == [False, True, True]


def test_files_that_change_meanwhile_give_their_grade_to_no_other(students):
    students.hand_in(ada="x", bob="x", eve="x", joe="x")
    students.changes = ("ada", "bob")
    grades = students.run()
    assert students.rounds == [["ada"], ["bob"], ["eve"]]
    assert graded_for(grades) == {"ada": "ada", "bob": "bob", "eve": "eve", "joe": "eve"}
    students.submissions = students.submissions[:1]
    students.hand_in(zoe="x")
    students.changes = ()
    assert graded_for(students.run())["zoe"] == "eve"


def test_notebooks_are_passed_on_as_soon_as_they_have_a_grade(students):
    students.hand_in(ada="x", bob="x", eve="y")
    with GradeStore(students.root / FILE, "", students.folder) as store:
        judged = grade_once(students.submissions, students.grade, store, True)
        assert [each.student for each, _ in judged] == ["ada", "bob", "eve"]
