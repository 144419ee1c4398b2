"""Work that repeats is done once: whole notebooks with the same code, and single answers.

With processes; test_grade_once.py and test_grade_trials.py do without.
"""

import json
import os
import signal

import pytest
from test_grade_classroom import ALL_RIGHT

from graded import RIGHT, SEED
from graded import hand_in as hand_in_cells
from lessons_grading import command, judge, try_answer
from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import grade_notebook
from lessons_grading.notebook import read_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.work import Work

NO_SANDBOX = Limits(sandboxed=False, cell_seconds=20.0)


def fake_grader(path, student, seed=0, limits=None, progress=lambda: None):
    """Does what the first cell says, and notes that it was called."""
    notebook = read_notebook(path)
    order = notebook.cells[0].source
    with (path.parent.parent / "calls").open("a") as file:
        file.write(f"{student}\n")
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "changed" and student == "s0":
        notebook = read_notebook(hand_in_cells(path.parent, "new", name=path.name))
    return SubmissionGrade(
        student, path.name, notebook.digest, "00", (ALL_RIGHT,), (order,), 0.5
    )


@pytest.fixture
def students(tmp_path):
    """Hands in a notebook of these cells, for each student."""
    folder = tmp_path / "class"
    folder.mkdir()

    def students(**cells: tuple[str, ...]):
        for student, sources in cells.items():
            path = hand_in_cells(folder, *sources, "check('0.1', blocks_needed)")
            path.rename(folder / f"{student}.ipynb")
        return folder

    return students


def run(folder, *words: str) -> dict[str, dict]:
    """The grades that the command gives, by student."""
    words = (str(folder), "--workers", "1", "--no-sandbox", "--seed", "1", *words)
    assert command.main(words, grader=fake_grader) == 0
    data = json.loads((folder.parent / "results" / "results.json").read_text())
    return {grade["student"]: grade for grade in data["submissions"]}


def called(folder) -> list[str]:
    return (folder.parent / "calls").read_text().split()


def test_notebooks_with_the_same_code_are_graded_once(students, capsys):
    folder = students(s0=("x", "y"), s1=("x", "y"), s2=("x", "y"), s3=("x", "z"))
    content = json.loads((folder / "s1.ipynb").read_text())
    content["cells"][0]["outputs"] = [{"output_type": "stream", "text": "another's machine"}]
    (folder / "s1.ipynb").write_text(json.dumps(content))
    grades = run(folder)
    assert called(folder) == ["s0", "s3"]
    assert [grades[name]["is_repeat"] for name in sorted(grades)] == [False, True, True, False]
    assert [grades[name]["seconds"] > 0 for name in sorted(grades)] == [
        True,
        False,
        False,
        True,
    ]
    for name, grade in grades.items():
        assert grade["notebook"] == f"{name}.ipynb" and grade["exercises"][0]["passed"]
        assert grade["digest"] == read_notebook(folder / f"{name}.ipynb").digest
    assert "Not run again: 2 notebooks with the same code" in capsys.readouterr().out
    page = (folder.parent / "results/class.html").read_text()
    assert "2 notebooks have the same code as another one" in page
    # a later one, and one that changes without its code
    students(s4=("x", "y"))
    (folder / "s1.ipynb").write_text(json.dumps(content, indent=3))
    grades = run(folder)
    assert called(folder) == ["s0", "s3"] and grades["s4"]["is_repeat"]
    run(folder, "--again")
    assert sorted(called(folder)) == ["s0", "s0", "s3", "s3"]
    run(folder, "--seed", "2")
    assert len(called(folder)) == 6


def test_a_fault_is_not_taken_over_before_another_has_had_it_too(students):
    folder = students(**{f"s{number}": ("die",) for number in range(4)})
    grades = run(folder)
    assert called(folder) == ["s0", "s0", "s1", "s1"]
    assert not any(grade["is_final"] or grade["exercises"] for grade in grades.values())
    assert grades["s3"]["events"] == grades["s1"]["events"] and grades["s3"]["is_repeat"]
    run(folder)
    assert len(called(folder)) == 8  # the next run tries again


def test_a_file_that_changes_meanwhile_gives_its_grade_to_no_other(students):
    folder = students(s0=("changed",), s1=("changed",), s2=("changed",))
    grades = run(folder)
    assert called(folder) == ["s0", "s1"]
    assert not grades["s1"]["is_repeat"] and grades["s2"]["is_repeat"]


@pytest.fixture
def remembering(monkeypatch):
    monkeypatch.setattr(try_answer, "_known", None)
    try_answer.remember_answers()


def counts(grade) -> tuple[int, int]:
    return grade.tried, grade.repeated


def graded(folder, *cells: str):
    return grade_notebook(hand_in_cells(folder, *cells), "ada", SEED, NO_SANDBOX)


def test_an_answer_that_was_tried_in_another_notebook_is_known(tmp_path, remembering):
    first = graded(tmp_path, RIGHT, "mine = 1")
    second = graded(tmp_path, RIGHT, "mine = 2")
    assert counts(first) == (1, 0) and counts(second) == (0, 1)
    assert first.exercises[0].passed and second.exercises[0].passed


@pytest.mark.slow
def test_an_answer_is_all_that_it_uses(tmp_path, remembering):
    """The same text is another answer if a helper in another cell is another one."""
    answer = (
        "def blocks_needed(num_tokens, block_size):\n    return up(num_tokens, block_size)"
    )
    other_seed = grade_notebook(hand_in_cells(tmp_path, RIGHT), "ada", SEED + 1, NO_SANDBOX)
    assert counts(other_seed) == (1, 0)
    right = graded(tmp_path, "def up(a, b):\n    return -(-a // b)", answer)
    wrong = graded(tmp_path, "def up(a, b):\n    return a // b", answer)
    again = graded(tmp_path, "def up(a, b):\n    return a // b", answer, "x = 1")
    assert [each.exercises[0].passed for each in (right, wrong, again)] == [True, False, False]
    assert [*map(counts, (right, wrong, again))] == [(1, 0), (1, 0), (0, 1)]
    assert again.exercises[0].message == wrong.exercises[0].message


@pytest.mark.slow
def test_a_known_answer_costs_what_it_has_cost(tmp_path, remembering, monkeypatch):
    """So a notebook gets the same grade, whatever was graded before it."""
    graded(tmp_path, RIGHT)
    works = []

    class Watched(Work):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            works.append(self)

    monkeypatch.setattr(judge, "Work", Watched)
    graded(tmp_path, RIGHT, "x = 1")
    (known,) = try_answer._known.values()
    assert works[0].reported.bytes == known.bytes > 1_000
    assert works[0].effort.seconds == known.effort > 0


def test_each_answer_that_is_tried_counts(tmp_path):
    one_that_fails = "def blocks_needed(num_tokens, block_size):\n    return 3"
    assert counts(graded(tmp_path, RIGHT, one_that_fails)) == (2, 0)
