"""What comes out when the cells of a notebook run. The runs are stand-ins."""

from collections import deque
from itertools import repeat
from types import SimpleNamespace

import pytest

from lessons_grading import run_cells, course
from lessons_grading.notebook import Cell, Notebook
from lessons_grading.sandbox import BUSY, LARGEST_SUM, Limits
from lessons_grading.work import Work
from lessons_lib import checks
from lessons_processes.isolation import Outcome

LIMITS = Limits(cell_seconds=60.0, notebook_seconds=600.0, output=3 << 20)
START = 10_000.0  # by the clock


class Session:
    """A stand-in for a run in the sandbox.

    reports: a number among them is how many own seconds it has had by then.
    asked: the time that each report was given, in own seconds and by the clock.
    """

    def __init__(self, *reports, ending="returned", starved=False, **how):
        self.reports, self.how = deque(reports), {"ending": ending, **how}
        self.seconds, self.starved, self.outcome, self.asked = 0.0, starved, None, []

    def next(self, seconds=None, clock=float("inf")):
        self.asked.append((seconds, clock))
        while self.reports and isinstance(self.reports[0], float):
            self.seconds = self.reports.popleft()
        if self.reports:
            return self.reports.popleft()
        self.outcome = Outcome(**self.how)
        return None


class Sessions:
    """A stand-in for Work.run: one session after another.

    ran: the numbers of the cells that each was given.
    """

    def __init__(self, sessions):
        self.left, self.ran = deque(sessions), []

    def __call__(self, function, given, *arguments, **named):
        self.ran.append([number for number, _ in given])
        self.arguments, self.named = (function, given, *arguments), named
        return self.left.popleft()


@pytest.fixture
def run(monkeypatch):
    """Runs a notebook of three cells, with these sessions. Each must be used."""

    def run(*sessions, num_cells=3, work=None, problem="", clock=None):
        given = tuple(Cell(number, f"x = {number}") for number in range(1, num_cells + 1))
        notebook = Notebook("", "00", given, problem)
        work = work or Work(notebook, checks.exercises_of("00"), 1, LIMITS)
        work.run = Sessions(sessions)
        times = iter(clock or repeat(START))
        monkeypatch.setattr(run_cells, "time", SimpleNamespace(monotonic=lambda: next(times)))
        run_cells.run_cells(work)
        assert not work.run.left
        return work

    return run


def test_all_cells_go_into_one_run_with_everything_that_they_may_see(run):
    work = run(Session(["cell", 1], ["cell", 2], ["cell", 3]))
    function, given, exercises, wanted, seconds = work.run.arguments
    assert function == "run_cells"
    assert given == [(1, "x = 1"), (2, "x = 2"), (3, "x = 3")]
    assert exercises["0.1"] == ("blocks_needed", "python", False)
    assert exercises["1.2"][1] == "c++" and exercises["6.8"][1] == "cuda"
    assert wanted == ["0.1"] and seconds == 60.0
    assert work.run.named == {
        "files": course.whole(),
        "clean": True,
        "seconds": 120.0,
        "output_limit": 3 << 20,
    }
    assert work.list_events() == () and not work.starved


@pytest.mark.parametrize("about", [{"problem": "this is not a file"}, {"num_cells": 0}])
def test_what_has_no_cells_to_run_is_not_run(run, about):
    assert run(**about).run.ran == []


def ended(cell: int, before=(), **how) -> Session:
    return Session(
        *(["cell", number] for number in (*before, cell)),
        **{"ending": "crashed", "detail": "signal 11"} | how,
    )


def test_cells_that_end_their_process_are_left_out_and_the_others_are_run_again(run):
    work = run(ended(2, before=[1]), ended(1), Session(["cell", 3]))
    assert work.run.ran == [[1, 2, 3], [1, 3], [3]]
    assert work.list_events() == (
        "the process crashed in cell 2: signal 11",
        "the process crashed in cell 1: signal 11",
    )


def test_when_all_cells_have_ended_their_process_there_is_nothing_to_run(run):
    work = run(ended(1), ended(2), num_cells=2)
    assert len(work.list_events()) == 2


def test_a_notebook_is_begun_again_three_times(run):
    work = run(*(ended(number) for number in (1, 2, 3, 4)), num_cells=6)
    assert work.run.ran == [[1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6], [3, 4, 5, 6], [4, 5, 6]]
    assert work.list_events()[-1] == "after 3 more tries its cells were not run again"


@pytest.mark.parametrize(
    "how, words",
    [
        (
            {"ending": "raised", "error": MemoryError("all of it")},
            "cell 2 raised MemoryError: all of it",
        ),
        (
            {"ending": "crashed", "detail": "signal 11"},
            "the process crashed in cell 2: signal 11",
        ),
        (
            {"ending": "exited", "detail": "exit code 3"},
            "the process ended in cell 2, exit code 3",
        ),
        ({"ending": "timed out"}, "cell 2 was stopped after 60 s"),
        ({"ending": "flooded"}, "cell 2 wrote more than 3 MB"),
        ({"ending": "anything else"}, "cell 2 ended its process"),
    ],
)
def test_the_report_says_which_cell_ended_the_process_and_how(run, how, words):
    assert run(ended(2, [1], **how), Session()).list_events() == (words,)


def test_a_run_that_ends_before_any_cell_is_our_own_fault(run):
    with pytest.raises(RuntimeError, match="^The cells could not be run: crashed, no files$"):
        run(Session(ending="crashed", detail="no files"))


@pytest.mark.parametrize(
    "reports, words", [([["cell", 1], ["cell", 2]], "cell 2"), ([], "the notebook")]
)
def test_a_machine_that_is_too_busy_ends_the_attempt(run, reports, words):
    work = run(Session(*reports, ending="timed out", starved=True))
    assert work.starved is True
    assert work.list_events() == (f"the machine was too busy for {words}",)


def test_what_reports_too_much_is_not_run_again(run):
    notebook = Notebook("", "00", (Cell(1, ""), Cell(2, "")))
    work = Work(notebook, checks.exercises_of("00"), 1, LIMITS)
    work.reported.bytes = LARGEST_SUM + 1
    assert run(ended(1), work=work).run.ran == [[1, 2]]


@pytest.mark.parametrize("sessions", [(600.0,), (200.0, 400.0), (1_000.0,)])
def test_a_notebook_that_has_used_up_its_time_is_not_run_again(run, sessions):
    """And the time is not the fault of its last cell."""
    made = [
        Session(["cell", number], seconds, ending="timed out")
        for number, seconds in enumerate(sessions, 1)
    ]
    work = run(*made)
    assert work.list_events()[len(sessions) - 1 :] == ("the notebook was stopped after 600 s",)
    assert work.seconds == sum(sessions)


def test_a_notebook_with_time_left_is_run_again(run):
    work = run(Session(["cell", 1], 599.0, ending="timed out"), Session())
    assert work.list_events() == ("cell 1 was stopped after 60 s",)


def limits_of(session: Session) -> list[float | None]:
    return [seconds for seconds, _ in session.asked]


def test_a_cell_has_its_time_and_a_little_more_until_its_next_report(run):
    """A report of the same cell, or of one that is not due, gives it no more time."""
    session = Session(
        ["cell", 1], ["cell", 1], ["cell", 3], ["error", 1, "x"], ["cell", 2], ["cell", 3],
        ["cell", 3],
        ending="crashed",
    )  # fmt: skip
    work = run(session, Session())
    assert limits_of(session) == [None, 65.0, None, None, None, 65.0, 65.0, None]
    assert work.run.ran == [[1, 2, 3], [1, 2]]


def test_no_cell_has_more_time_than_is_left_of_the_notebooks(run):
    first = Session(["cell", 1], 400.0, ["cell", 2], 500.0, ending="crashed")
    second = Session(20.0, ["cell", 1], 70.0, ["cell", 3], 130.0, ["cell", 3])
    run(first, second)
    assert limits_of(first) == [None, 65.0, 65.0]
    assert limits_of(second) == [None, 65.0, 30.0, None]
    late = Session(700.0, ["cell", 1])
    run(late)
    assert limits_of(late) == [None, 0.0]


def test_all_runs_of_a_notebook_have_one_deadline_by_the_clock(run):
    first, second = ended(1), Session(["cell", 2])
    clock = [START, START, START + 100.0, START + 200.0, START + 1e9]
    run(first, second, clock=clock)
    whole = BUSY * 600.0
    assert [left for _, left in first.asked] == [whole, whole - 100.0]
    assert [left for _, left in second.asked] == [whole - 200.0, 0.0]


def test_errors_and_stops_are_noted_and_the_run_goes_on(run):
    work = run(
        Session(
            ["cell", 1],
            ["error", 1, "ValueError: x"],
            ["cell", 2],
            ["stopped", 2],
            ["cell", 3],
            ["answer", "0.1", {"text": "late"}],
        )
    )
    assert work.list_events() == (
        "cell 1 raised ValueError: x",
        "cell 2 was stopped after 60 s",
    )
    assert work.answers == {"0.1": [{"text": "late"}]}


TEXT, PICKLE, REFUSED = {"text": "a"}, {"pickle": "b"}, {"refused": ["missing", "c"]}


def test_only_answers_of_this_lesson_in_a_known_form_are_taken(run):
    strange = [
        ["answer", "2.2", TEXT],
        ["answer", "0.1", {"refused": ["missing"]}],
        ["answer", "0.1", {"text": 1}],
        ["answer", "0.1"],
        ["reply", "0.1", TEXT],
    ]
    taken = [["answer", "0.1", each] for each in (TEXT, PICKLE, REFUSED)]
    work = run(Session(*strange, *taken))
    assert work.answers == {"0.1": [TEXT, PICKLE, REFUSED]}


def test_the_last_five_answers_count_and_what_is_refused_displaces_none(run):
    def text(number):
        return {"text": str(number)}

    def refused(number):
        return {"refused": ["missing", str(number)]}

    given = [each(number) for number in range(1, 9) for each in (text, refused)]
    work = run(Session(["cell", 1], *(["answer", "0.1", each] for each in given)))
    assert work.answers["0.1"] == [
        each(number) for number in range(4, 9) for each in (text, refused)
    ]
