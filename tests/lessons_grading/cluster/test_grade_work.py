"""The work on one submission, with stand-ins for its sandboxes."""

from types import SimpleNamespace

import pytest

from lessons_grading import work as work_module
from lessons_grading.hidden_cases import Effort
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits, Reported
from lessons_grading.work import Work, how_it_ended
from lessons_lib.compiler_errors import CompileError
from lessons_processes import isolation

PYTHON = SimpleNamespace(id="0.1", language="python")
CPP = SimpleNamespace(id="3.1", language="cpp")
CUDA = SimpleNamespace(id="9.1", language="cuda")


class Box:
    """A sandbox that keeps what it is asked to run."""

    def __init__(self, limits, reported):
        self.limits, self.reported = limits, reported
        self.alive, self.closed, self.ran = True, False, []

    def run(self, function, *arguments, files, seconds, **limits):
        self.ran.append((function, arguments, files, seconds, limits))
        return f"run {len(self.ran)}"

    def close(self):
        self.alive, self.closed = False, True


@pytest.fixture
def boxes(monkeypatch) -> list[Box]:
    """The sandboxes, in the order in which they were made."""
    made = []

    def new(*given):
        made.append(Box(*given))
        return made[-1]

    monkeypatch.setattr(work_module, "Sandbox", new)
    return made


@pytest.fixture
def built(monkeypatch):
    """The runtimes that were built. One process builds them once."""
    made = []
    monkeypatch.setattr(work_module.cuda_builds, "runtime_library", made.append)
    work_module._build_runtimes.cache_clear()
    yield made
    work_module._build_runtimes.cache_clear()


def begun(*exercises, problem="", limits=None, **other) -> Work:
    notebook = Notebook("", "00", (), problem)
    return Work(notebook, exercises or (PYTHON,), 7, limits or Limits(), **other)


def test_at_first_nothing_has_happened(boxes):
    work = begun(PYTHON, CUDA)
    assert work.answers == {"0.1": [], "9.1": []} and work.exercises == (PYTHON, CUDA)
    assert (work.seconds, work.tried, work.repeated) == (0.0, 0, 0)
    assert work.starved is False and work.list_events() == ()
    assert (work.seed, work.limits, work.notebook.lesson) == (7, Limits(), "00")
    assert not work.reported.is_too_much() and not work.effort.is_too_much()
    assert isinstance(work.reported, Reported) and isinstance(work.effort, Effort)
    work.close()
    assert not boxes


def test_what_is_wrong_with_the_notebook_is_the_first_event():
    work = begun(problem="this is not a notebook")
    work.note("more")
    assert work.list_events() == ("this is not a notebook", "more")


def test_each_event_is_one_short_line_and_comes_once():
    work = begun()
    for event in ("b", "a\n  line", "b", "x" * 400 + "y", "x" * 400 + "z"):
        work.note(event)
    assert work.list_events() == ("b", "a line", "x" * 400)


@pytest.mark.parametrize("number", [11, 12])
def test_a_dozen_events_are_listed(number):
    work = begun()
    for event in range(number):
        work.note(f"event {event}")
    assert work.list_events() == tuple(f"event {event}" for event in range(number))


@pytest.mark.parametrize(
    "number, more", [(13, 2), (999, 988), (1_000, 989), (1_001, 989), (2_000, 989)]
)
def test_of_more_events_the_first_ones_are_listed_and_a_thousand_are_kept(number, more):
    work = begun()
    for event in range(number):
        work.note(f"event {event}")
    first = (f"event {event}" for event in range(11))
    assert work.list_events() == (*first, f"and {more} more of this kind")


def test_without_a_sandbox_it_says_so_first():
    work = begun(limits=Limits(sandboxed=False))
    work.note("an event")
    assert work.list_events() == ("it ran without a sandbox", "an event")


def test_runs_share_a_sandbox_as_long_as_it_lives(boxes):
    steps = []
    work = begun(limits=Limits(disk=5), progress=lambda: steps.append(len(boxes)))
    assert work.run("observe", 1, 2, files={"a": "b"}, seconds=3.0, clean=True) == "run 1"
    assert work.run("build", files={}, seconds=4.0) == "run 2"
    (box,) = boxes
    assert box.ran == [
        ("observe", (1, 2), {"a": "b"}, 3.0, {"clean": True}),
        ("build", (), {}, 4.0, {}),
    ]
    assert box.limits == Limits(disk=5) and box.reported is work.reported
    assert steps == [0, 1]  # each step is announced before it begins
    work.close()
    assert box.closed


def test_a_dead_sandbox_is_closed_and_the_next_run_has_a_new_one(boxes):
    work = begun()
    for _ in range(3):
        work.run("observe", files={}, seconds=1.0)
        boxes[0].alive = False
    first, second = boxes
    assert first.closed and not second.closed and len(second.ran) == 2
    assert first.reported is second.reported  # what it may report is for all of them
    work.close()
    assert second.closed


def test_progress_need_not_be_watched(boxes):
    assert begun().run("observe", files={}, seconds=1.0) == "run 1"


def test_the_runtimes_for_cuda_are_built_once_before_the_first_sandbox(boxes, built):
    for _ in range(2):
        begun(PYTHON, CUDA).run("observe", files={}, seconds=1.0)
    assert built == [True, False] and len(boxes) == 2


def test_without_cuda_no_runtime_is_built(boxes, built):
    begun(PYTHON, CPP).run("observe", files={}, seconds=1.0)
    assert not built and len(boxes) == 1


def test_a_runtime_that_cannot_be_built_stops_no_run(boxes, built, monkeypatch):
    def fail(checked):
        built.append(checked)
        raise CompileError("no compiler")

    monkeypatch.setattr(work_module.cuda_builds, "runtime_library", fail)
    assert begun(CUDA).run("observe", files={}, seconds=1.0) == "run 1"
    assert built == [True, False]


class Run:
    def __init__(self, starved, outcome=None):
        self.starved, self.outcome, self.stopped = starved, outcome, 0

    def stop(self):
        self.stopped += 1


def test_a_busy_machine_is_an_event_and_no_fault_of_the_answer():
    work = begun()
    work.stop(run := Run(starved=False))
    assert run.stopped == 1 and work.starved is False and work.list_events() == ()
    work.stop(run := Run(starved=True))
    assert run.stopped == 1 and work.starved is True
    work.stop(Run(starved=False))
    assert work.starved is True
    assert work.list_events() == ("the machine was too busy to try an answer",)


def test_how_a_run_ended_is_known_after_its_last_report_only():
    outcome = isolation.Outcome("returned")
    assert how_it_ended(Run(False, outcome)) is outcome
    with pytest.raises(AssertionError):
        how_it_ended(Run(False))
