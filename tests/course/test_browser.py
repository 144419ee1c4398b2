"""The lessons as a learner does them: a real JupyterLab in a real browser, by keyboard."""

import os
import re
from pathlib import Path

import pytest

from lessons_build.build import select
from lessons_lib.paths import ROOT, build_folder

try:
    from jupyterlab_driver import Notebook, browser_page, find_chromium, jupyterlab
except ImportError:  # playwright is missing
    find_chromium = lambda: None  # noqa: E731

pytestmark = [
    pytest.mark.browser,
    # CI installs Chromium, so that there the test cannot be skipped by accident.
    pytest.mark.skipif(
        not find_chromium() and "CI" not in os.environ,
        reason="no Chromium here (Debian, Ubuntu: sudo apt-get install chromium)",
    ),
]


# For the README: the picture whose text has these words.
KEY_PICTURES = {
    "02_block_tables": "Four sequences in a pool of ten blocks",
    "03_prefill": "Three plots of m, l and o",
    "04_decode": "Left, three bars",
    "05_batched_metadata": "Three sequences in one batch",
    "06_cuda_kernel": "The pool's blocks as tables",
    "07_fast_kernel": "Bars for all rungs and for the other libraries",
    "08_serve_a_model": "A timeline with twelve rows",
    "09_prompt_kernel": "In rung 4 it reads those below",
    "10_keep_the_gpu_busy": "Pairs of lanes over time",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with jupyterlab(tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture
def lab(server):
    with browser_page() as page:
        yield page, *server
        page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")


def shown(cell: dict, kind: str = "text/plain") -> str:
    """What a cell's outputs show, as text. A line about waiting has become an empty one."""
    texts = (
        "".join(output.get("data", {}).get(kind, output.get("text", "")))
        for output in cell["outputs"]
    )
    return "\n".join(filter(None, texts))


def picture_folder() -> Path:
    folder = (
        ROOT / os.environ["SCREENSHOTS"]
        if "SCREENSHOTS" in os.environ
        else build_folder() / "screenshots"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


QUICK = ("00_start_here",)
SLOW = pytest.mark.slow, pytest.mark.sampled


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=[] if lesson.name in QUICK else SLOW)
        for lesson in select([])
    ],
    ids=lambda lesson: lesson.name,
)
def test_a_lesson_runs_to_its_first_stub_and_goes_on_with_an_answer(lab, lesson):
    """The summary and the glossary have no exercises, and run to their ends."""
    page, port, token = lab
    notebook = Notebook(page, port, token, f"{lesson.name}.ipynb")
    notebook.close_side_bar()
    stub = next((cell for cell in lesson.cells if cell.kind == "exercise"), None)
    assert notebook.run_all() is (stub is None)
    if stub:
        number = stub.exercise.replace(".", "-")
        assert "not attempted yet" in shown(
            notebook.cells()[notebook.index(f"check-{number}")]
        )
        notebook.type_into(f"exercise-{number}", stub.solution())
        notebook.run_cell(f"exercise-{number}")
        assert ": passed" in shown(notebook.run_cell(f"check-{number}"))
    has_code = any(cell.kind != "markdown" for cell in lesson.cells)  # all but the glossary
    assert page.locator(".jp-Notebook img").count() >= has_code
    if lesson.name == "00_start_here":
        assert page.locator(".jp-OutputArea img[alt*='Five bars']").count() == 1
        idea = page.locator(".jp-Notebook img[alt*='the words of two requests']").first
        idea.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        idea.screenshot(path=picture_folder() / f"{lesson.name}.png")
    assert page.console_errors == []


@pytest.mark.slow
def test_lesson_01_a_failed_check_then_a_right_answer(lab):
    """The picture that the README shows is taken at the failed check."""
    page, port, token = lab
    notebook = Notebook(page, port, token, "01_block_manager.ipynb")
    notebook.close_side_bar()
    right = next(
        cell.solution()
        for cell in select(["01"])[0].cells
        if cell.exercise == "1.1" and cell.kind == "exercise"
    )
    wrong = re.sub(r" *block_ids_\.pop_back\(\);\n", "", right)
    assert wrong != right

    for cell in notebook.cells()[: notebook.index("exercise-1-1")]:
        if cell["cell_type"] == "code":
            notebook.run_cell(cell["id"])
    notebook.type_into(
        "exercise-1-1",
        wrong.replace("    // BEGIN SOLUTION\n", "").replace("    // END SOLUTION\n", ""),
    )
    notebook.run_cell("exercise-1-1")
    failed = notebook.run_cell("check-1-1")
    assert "not yet (pop-does-not-remove)" in shown(failed)
    error = failed["outputs"][-1]
    assert (error["ename"], error["evalue"]) == (
        "CheckFailed",
        "exercise 1.1: pop-does-not-remove",
    )
    assert len(error["traceback"]) == 1
    notebook.cell("check-1-1").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    page.screenshot(path=picture_folder() / "01_block_manager.png")

    notebook.type_into("exercise-1-1", right)
    notebook.run_cell("exercise-1-1")
    passed = notebook.run_cell("check-1-1")
    assert shown(passed) == "✓ Exercise 1.1, the free list: passed"
    assert page.console_errors == []


@pytest.mark.slow
def test_lesson_06_names_a_race_with_its_line(lab):
    """The README shows this picture too."""
    page, port, token = lab
    notebook = Notebook(page, port, token, "06_cuda_kernel.ipynb")
    notebook.close_side_bar()
    answers = {
        f"exercise-{cell.exercise.replace('.', '-')}": cell.solution()
        for cell in select(["06"])[0].cells
        if cell.kind == "exercise"
    }
    right = answers["exercise-6-3"]
    wrong = right.replace("  __syncthreads();\n  value = of_warp[0];", "  value = of_warp[0];")
    assert wrong != right
    answers["exercise-6-3"] = re.sub(r" *// (BEGIN|END) SOLUTION\n", "", wrong)
    for cell in notebook.cells()[: notebook.index("exercise-6-3") + 1]:
        if cell["cell_type"] == "code":
            if cell["id"] in answers:
                notebook.type_into(cell["id"], answers[cell["id"]])
            notebook.run_cell(cell["id"])
    failed = shown(notebook.run_cell("check-6-3"))
    assert "not yet" in failed and re.search(r"line \d+", failed), failed
    notebook.cell("check-6-3").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    page.screenshot(path=picture_folder() / "06_race.png")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(
    "lesson",
    [lesson for lesson in select([])[1:] if lesson.name != "glossary"],
    ids=lambda lesson: lesson.name,
)
def test_a_lesson_from_the_first_cell_to_the_last(lab, lesson):
    """Every exercise is typed in; then the whole notebook runs. The README's picture of it is
    the lesson's key picture.
    """
    page, port, token = lab
    notebook = Notebook(page, port, token, f"{lesson.name}.ipynb")
    notebook.close_side_bar()
    exercises = [cell for cell in lesson.cells if cell.kind == "exercise"]
    for cell in exercises:
        notebook.type_into(f"exercise-{cell.exercise.replace('.', '-')}", cell.solution())
    finished = notebook.run_all()
    cells = notebook.cells()
    errors = [
        (cell["id"], output["ename"], output["evalue"])
        for cell in cells
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
        if output["output_type"] == "error"
    ]
    state = [
        (cell["id"], cell["execution_count"], len(cell["outputs"]))
        for cell in cells
        if cell["cell_type"] == "code"
    ]
    assert (finished, errors) == (True, []), state
    passed = [
        cell for cell in cells if cell["id"].startswith("check-") and ": passed" in shown(cell)
    ]
    assert len(passed) == len(exercises)
    assert page.locator(".jp-Notebook img").count() >= (2 if exercises else 1)
    assert page.console_errors == []
    if words := KEY_PICTURES.get(lesson.name):
        picture = page.locator(f'.jp-Notebook img[alt*="{words}"]').first
        laptop = page.viewport_size
        # so that the tallest one is seen whole
        page.set_viewport_size(laptop | {"height": 1200})
        picture.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        picture.screenshot(path=picture_folder() / f"{lesson.name}.png")
        page.set_viewport_size(laptop)
