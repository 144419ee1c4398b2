"""The grade of a submission, from what its cells give and what is found of its answers."""

from types import SimpleNamespace

import pytest

from graded import RIGHT, hand_in
from lessons_grading import judge
from lessons_grading.judge import grade_notebook, grade_read
from lessons_grading.notebook import Cell, Notebook
from lessons_grading.sandbox import Limits
from lessons_lib import checks
from lessons_lib.checks import CheckResult

NAME = "00_start_here.ipynb"
LIMITS = Limits(cell_seconds=3.0)
EXERCISE = checks.find("0.1")
READ = Notebook("a digest", "00", (Cell(2, "x = 1"),))


@pytest.fixture
def submission(monkeypatch):
    """What a submission does in its sandbox. It takes 10 seconds, and each answer 3.14159.

    gives: the texts that its cells give as answers to 0.1. Only "right" passes; those that
        begin with "no" are none.
    works: the work on each submission.
    """
    does = SimpleNamespace(gives=["right"], works=[], cells=lambda work: None, examined=[])
    now = [100.0]
    monkeypatch.setattr(judge, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def run_cells(work):
        does.works.append(work)
        now[0] += 10.0
        work.reported.bytes = 500
        does.cells(work)
        for exercise in work.exercises:
            work.answers[exercise.id] += [
                {"refused" if text.startswith("no") else "text": text} for text in does.gives
            ]

    def examine(work, exercise, answer):
        now[0] += 3.14159
        (text,) = answer.values()
        does.examined.append((text, work.reported.bytes))
        passed = text == "right"
        return CheckResult(exercise.id, passed, None if passed else "wrong", text)

    monkeypatch.setattr(judge, "run_cells", run_cells)
    monkeypatch.setattr(judge, "examine", examine)
    return does


def grade(notebook=READ):
    return grade_read(notebook, NAME, "ada", 7, LIMITS)


def test_a_grade_tells_of_the_submission_and_of_each_exercise(submission):
    def cells(work):
        work.note("cell 2 raised it")
        work.tried, work.repeated = 4, 5

    submission.cells = cells
    found = grade()
    assert (found.student, found.notebook, found.digest) == ("ada", NAME, "a digest")
    assert (found.lesson, found.events, found.seconds) == ("00", ("cell 2 raised it",), 13.14)
    assert (found.is_final, found.is_repeat, found.tried, found.repeated) == (
        True,
        False,
        4,
        5,
    )
    (one,) = found.exercises
    assert (one.exercise, one.title, one.seconds) == ("0.1", EXERCISE.title, 3.14)
    assert (one.points, one.earned, one.passed) == (EXERCISE.points, EXERCISE.points, True)
    assert (one.mistake, one.message) == (None, "right")
    (work,) = submission.works
    assert (work.notebook, work.seed, work.limits) == (READ, 7, LIMITS)


def test_what_cells_have_reported_leaves_room_for_results(submission):
    grade()
    assert submission.examined == [("right", 0)]


COUNTS = {  # what the cells give; those that are tried; what counts
    "the newest that passes": (
        ["right", "first", "right", "last"],
        ["last", "right"],
        "right",
    ),
    "the newest that fails": (
        ["first", "second", "last"],
        ["last", "second", "first"],
        "last",
    ),
    "one that can be tried": (["first", "no answer"], ["first", "no answer"], "first"),
    "none that can be tried": (
        ["no words", "no answer"],
        ["no answer", "no words"],
        "no answer",
    ),
}


@pytest.mark.parametrize("gives, tried, counts", COUNTS.values(), ids=COUNTS)
def test_of_several_answers_the_best_counts(submission, gives, tried, counts):
    submission.gives = gives
    (one,) = grade().exercises
    assert [text for text, _ in submission.examined] == tried and one.message == counts
    assert one.passed is (counts == "right") and one.earned == int(one.passed)
    assert one.mistake == (None if one.passed else "wrong")


def test_an_exercise_without_an_answer_is_missing(submission):
    submission.gives = []
    (one,) = grade().exercises
    assert (one.passed, one.earned, one.mistake) == (False, 0, "missing")
    assert one.message == "No cell that could be run defines `blocks_needed`."
    assert one.seconds == 0.0


def test_a_message_is_cut_after_four_thousand_characters(submission):
    submission.gives = ["x" * 5_000]
    assert grade().exercises[0].message == "x" * 4_000


@pytest.mark.parametrize(
    "notebook, exercises, is_final",
    [
        (READ, 1, True),
        (Notebook("a digest", None, (), "it is of no lesson"), 0, True),
        (Notebook("", "00", (), "it cannot be read"), 0, False),
        (Notebook("", None, (), "it cannot be read"), 0, False),
    ],
    ids=["of a lesson", "of none", "not read", "not read, of no lesson"],
)
def test_only_what_was_read_has_exercises_and_a_final_grade(
    submission, notebook, exercises, is_final
):
    found = grade(notebook)
    assert len(found.exercises) == exercises and found.is_final is is_final
    assert found.events == ((notebook.problem,) if notebook.problem else ())


def test_what_a_busy_machine_did_not_let_finish_is_not_final(submission):
    submission.cells = lambda work: setattr(work, "starved", True)
    assert grade().is_final is False


@pytest.mark.parametrize("fails", [False, True])
def test_its_sandbox_is_closed_in_any_case(submission, fails):
    closed = []

    def cells(work):
        work._sandbox = SimpleNamespace(close=lambda: closed.append(1))
        if fails:
            raise RuntimeError("no sandbox can be started")

    submission.cells = cells
    if fails:
        with pytest.raises(RuntimeError):
            grade()
    else:
        assert grade().is_final
    assert closed == [1]


def test_a_notebook_is_graded_by_its_file(submission, tmp_path):
    path = hand_in(tmp_path, RIGHT)
    steps = []
    submission.cells = lambda work: work._progress()
    found = grade_notebook(path, "ada", 8, LIMITS, progress=lambda: steps.append(1))
    assert (found.student, found.notebook, found.lesson) == ("ada", path.name, "00")
    assert grade_notebook(str(path), "ada", 8).exercises[0].passed
    first, second = submission.works
    assert (first.seed, first.limits, steps) == (8, LIMITS, [1])
    assert first.notebook.cells[0].source == RIGHT and second.limits == Limits()
