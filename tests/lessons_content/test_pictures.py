"""No picture has words that touch, a legend over its data, or a part too thin to be seen."""

import importlib

import matplotlib.pyplot as plt
import nbclient
import nbformat
import pytest
from matplotlib.patches import Rectangle

import lessons_draw
import picture_faults
from lessons_bench.fast_engine_runs import recorded as engine_runs
from lessons_bench.ladder_runs import recorded as ladder_runs
from lessons_build.build import select
from lessons_draw import USED, fast_engine, lesson_07
from lessons_lib.paths import ROOT, SOLUTIONS

CLOSE = plt.close  # tests put another in its place
LESSONS = [lesson.name for lesson in select([]) if lesson.name != "glossary"]


@pytest.fixture
def figures(monkeypatch):
    """The figures that are shown, in their order."""
    shown = []
    monkeypatch.setattr(lessons_draw.plt, "close", shown.append)
    yield shown
    monkeypatch.undo()
    CLOSE("all")


@pytest.fixture
def axes():
    figure, axes = plt.subplots(figsize=(5, 2))
    axes.set(xlim=(0, 100), ylim=(0, 10))
    yield axes
    CLOSE(figure)


@pytest.mark.parametrize(
    "lesson", [name.split("_")[0] for name in LESSONS if not name.startswith("02")]
)
def test_the_first_picture_of_each_lesson(figures, lesson):
    """Lesson 02 draws its own in SVG."""
    importlib.import_module(f"lessons_draw.lesson_{lesson}").opening()
    (figure,) = figures
    assert picture_faults.faults(figure) == []


def test_the_charts_of_what_was_measured(figures):
    run = ladder_runs()[0]
    for workload in lesson_07.BATCHES:
        lesson_07.whole_ladder(run, workload)
    lesson_07.all_workloads(run)
    figures.append(fast_engine.overview(engine_runs()[0]))
    assert [picture_faults.faults(figure) for figure in figures] == [[]] * len(figures)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("name", LESSONS)
def test_every_picture_of_a_lesson(name, tmp_path, monkeypatch):
    """The lesson runs with its own data, and fails at the first picture with a fault."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support"))
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


def test_words_over_words_are_found(axes):
    axes.text(10, 5, "one thing"), axes.text(14, 5, "another")
    assert picture_faults.faults(axes.figure) == ["'one thing' and 'another' overlap"]


@pytest.mark.parametrize("distance, faults", [(30, 1), (38, 0)])
def test_words_that_read_like_one_text_are_found(axes, distance, faults):
    axes.text(10, 5, "one thing of two"), axes.text(10 + distance, 5, "another thing")
    assert len(picture_faults.faults(axes.figure)) == faults


def test_paragraphs_beside_each_other_need_more_room(axes):
    for left in (10, 45):
        axes.text(left, 5, "request 0: 6 tokens,\n2 blocks", fontsize=9)
    (fault,) = picture_faults.faults(axes.figure)
    assert "nearly touch" in fault


def test_a_legend_over_a_bar_or_a_line_is_found(axes):
    axes.barh(5, 90, 8, label="full")
    axes.legend(loc="center right")
    assert picture_faults.faults(axes.figure) == ["the legend covers a Rectangle"]
    axes.clear()
    axes.plot([0, 100], [1, 9], label="rising")
    axes.legend(loc="upper right")
    assert picture_faults.faults(axes.figure) == [
        "the legend covers a part of the line 'rising'"
    ]
    axes.legend(loc="lower right")
    assert picture_faults.faults(axes.figure) == []


def test_a_word_that_is_wider_than_its_block_is_found(axes):
    lessons_draw.draw_block(axes, 10, 4, "too long", USED, width=5)
    lessons_draw.draw_block(axes, 50, 4, "fits", USED, width=30)
    assert picture_faults.faults(axes.figure) == ["'too long' is wider than its place"]


def test_a_sliver_is_found_unless_it_is_magnified_or_its_legend_says_so(axes):
    axes.add_patch(Rectangle((10, 2), 0.5, 5, facecolor=USED, label="a part"))
    (fault,) = picture_faults.faults(axes.figure)
    assert fault.startswith(f"all parts of the colour {USED} are")
    inset = axes.inset_axes((0.5, 0.5, 0.4, 0.4))
    inset.add_patch(Rectangle((0, 0), 1, 1, facecolor=USED))
    assert picture_faults.faults(axes.figure) == []
    inset.remove()
    axes.patches[0].set_label("a part, too thin to see")
    axes.figure.legend(loc="upper right")
    assert picture_faults.faults(axes.figure) == []


def test_a_watched_picture_with_a_fault_is_refused(monkeypatch, axes):
    monkeypatch.setattr(lessons_draw.plt, "close", lambda figure: None)
    picture_faults.watch()
    lessons_draw.show(axes.figure, "Nothing.")
    axes.text(10, 5, "one thing"), axes.text(14, 5, "another")
    with pytest.raises(AssertionError, match="overlap"):
        lessons_draw.show(axes.figure, "Two things.")
