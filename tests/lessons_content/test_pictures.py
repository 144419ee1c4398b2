"""No picture has words that touch, a legend over its data, or a part too thin to be seen."""

import matplotlib.pyplot as plt
import nbclient
import nbformat
import pytest

import lessons_lib.drawing
import picture_faults
from lessons_content.lesson_07 import pictures
from lessons_content.lesson_07.bench.ladder_runs import recorded as ladder_runs
from lessons_content.lesson_10.bench.fast_engine_runs import recorded as engine_runs
from lessons_content.lesson_10.pictures import fast_engine
from lessons_lib import rooms
from lessons_lib.paths import ROOT, SOLUTIONS
from tools.notebooks.build import select

CLOSE = plt.close  # tests put another in its place
LESSONS = [lesson.name for lesson in select([]) if lesson.name != "glossary"]


@pytest.fixture
def figures(monkeypatch):
    """The figures that are shown, in their order."""
    shown = []
    monkeypatch.setattr(lessons_lib.drawing.plt, "close", shown.append)
    yield shown
    monkeypatch.undo()
    CLOSE("all")


@pytest.fixture
def axes():
    figure, axes = plt.subplots(figsize=(5, 2))
    axes.set(xlim=(0, 100), ylim=(0, 10))
    yield axes
    CLOSE(figure)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "lesson", [name.split("_")[0] for name in LESSONS if not name.startswith("02")]
)
def test_the_first_picture_of_each_lesson(figures, lesson):
    """Lesson 02 draws its own in SVG."""
    rooms.pictures(lesson).opening()
    (figure,) = figures
    assert picture_faults.faults(figure) == []


@pytest.mark.parametrize(
    "num_workloads",
    [1, pytest.param(len(pictures.BATCHES), marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_the_charts_of_what_was_measured(figures, num_workloads):
    run = ladder_runs()[0]
    for workload in list(pictures.BATCHES)[:num_workloads]:
        pictures.whole_ladder(run, workload)
    pictures.all_workloads(run)
    figures.append(fast_engine.overview(engine_runs()[0]))
    assert [picture_faults.faults(figure) for figure in figures] == [[]] * len(figures)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("name", LESSONS)
def test_every_picture_of_a_lesson(name, tmp_path, monkeypatch):
    """The lesson runs with its own data, and fails at the first picture with a fault."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support/course"))
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path))
    notebook = nbformat.read(SOLUTIONS / f"{name}.ipynb", as_version=4)
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("import picture_faults; picture_faults.watch()")
    )
    nbclient.NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": str(SOLUTIONS)}},
    ).execute()


def test_a_watched_picture_with_a_fault_is_refused(monkeypatch, axes):
    monkeypatch.setattr(lessons_lib.drawing.plt, "close", lambda figure: None)
    picture_faults.watch()
    lessons_lib.drawing.show(axes.figure, "Nothing.")
    axes.text(10, 5, "one thing"), axes.text(14, 5, "another")
    with pytest.raises(AssertionError, match="overlap"):
        lessons_lib.drawing.show(axes.figure, "Two things.")
