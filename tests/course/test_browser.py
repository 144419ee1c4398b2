"""The lessons as a learner does them: a real JupyterLab in a real browser, by keyboard."""

import os
import re
from pathlib import Path

import pytest

from jupyterlab_driver import Notebook, browser_page, jupyterlab
from lessons_lib.paths import ROOT, build_folder
from paged_attention.engine.speaking import (
    HOW_TO_GET_IT,
    ModelNotHereError,
    speaking_model,
)
from tools.notebooks.build import select

pytestmark = [
    pytest.mark.browser,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with jupyterlab(tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture
def opened(server):
    """Opens a lesson alone. Gives the browser's page, and its notebook."""
    with browser_page() as page:

        def open_lesson(name):
            notebook = Notebook(page, *server, f"{name}.ipynb")
            notebook.close_side_bar()
            return page, notebook

        yield open_lesson
        page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")


def answers_to(lesson) -> dict[str, str]:
    """Ours, by the id of their cells, and without the marks that no learner's have."""
    return {
        f"exercise-{cell.exercise.replace('.', '-')}": re.sub(
            r" *(//|#) (BEGIN|END) SOLUTION.*\n?", "", cell.solution()
        )
        for cell in lesson.cells
        if cell.kind == "exercise"
    }


def run_up_to(notebook, cell_id: str, answers=None) -> None:
    """Runs the cells above this one, and types these answers into them."""
    answers = answers or {}
    for cell in notebook.cells()[: notebook.index(cell_id)]:
        if cell["id"] in answers:
            notebook.type_into(cell["id"], answers[cell["id"]])
        if cell["cell_type"] == "code":
            notebook.run_cell(cell["id"])


def photograph(page, notebook, cell_id: str, name: str) -> None:
    """The screen with this cell, for the README."""
    notebook.cell(cell_id).scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    page.screenshot(path=picture_folder() / name)


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


FIRST = "00_start_here"
OTHERS = pytest.mark.slow(nightly=True), pytest.mark.sampled


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=pytest.mark.slow if lesson.name == FIRST else OTHERS)
        for lesson in select([])
    ],
    ids=lambda lesson: lesson.name,
)
def test_a_lesson_runs_to_its_first_stub_and_goes_on_with_an_answer(opened, lesson):
    """The summary and the glossary have no exercises, and run to their ends."""
    page, notebook = opened(lesson.name)
    answers = answers_to(lesson)
    assert notebook.run_all() is (not answers)
    if answers:
        stub, answer = next(iter(answers.items()))
        check = stub.replace("exercise", "check")
        assert "not attempted yet" in shown(notebook.cells()[notebook.index(check)])
        notebook.type_into(stub, answer)
        notebook.run_cell(stub)
        assert ": passed" in shown(notebook.run_cell(check))
    has_code = any(cell.kind != "markdown" for cell in lesson.cells)  # all but the glossary
    assert page.locator(".jp-Notebook img").count() >= has_code
    if lesson.name == "00_start_here":
        assert page.locator(".jp-OutputArea img[alt*='Five bars']").count() == 1
        assert page.locator(".jp-OutputArea .pool-player[data-started]").count() == 1
    assert page.console_errors == []


def has_model_that_speaks() -> bool:
    try:
        return speaking_model().is_dir()
    except ModelNotHereError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not has_model_that_speaks(), reason=HOW_TO_GET_IT)
def test_lesson_08_speaks(opened):
    """The README shows this conversation."""
    page, notebook = opened("08_serve_a_model")
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook.cells()}
    (live,) = [cell_id for cell_id, source in sources.items() if "talk = Conv" in source]
    run_up_to(notebook, live, answers_to(*select(["08"])))
    told = shown(notebook.run_cell(live))
    assert "Ada: The capital of France is Paris." in told and "3 of them shared" in told
    photograph(page, notebook, live, "08_it_speaks.png")


@pytest.mark.slow
def test_lesson_01_a_failed_check_names_the_mistake(opened):
    """The README shows this picture."""
    page, notebook = opened("01_block_manager")
    right = answers_to(*select(["01"]))["exercise-1-1"]
    wrong = re.sub(r" *block_ids_\.pop_back\(\);\n", "", right)
    assert wrong != right
    run_up_to(notebook, "check-1-1", {"exercise-1-1": wrong})
    failed = notebook.run_cell("check-1-1")
    assert "not yet (pop-does-not-remove)" in shown(failed)
    error = failed["outputs"][-1]
    assert (error["ename"], error["evalue"]) == (
        "CheckFailed",
        "exercise 1.1: pop-does-not-remove",
    )
    assert len(error["traceback"]) == 1
    photograph(page, notebook, "check-1-1", "01_block_manager.png")
    assert page.console_errors == []


@pytest.mark.slow
def test_lesson_06_names_a_race_with_its_line(opened):
    """The README shows this picture too."""
    page, notebook = opened("06_cuda_kernel")
    answers = answers_to(*select(["06"]))
    right = answers["exercise-6-3"]
    wrong = right.replace("  __syncthreads();\n  value = of_warp[0];", "  value = of_warp[0];")
    assert wrong != right
    run_up_to(notebook, "check-6-3", answers | {"exercise-6-3": wrong})
    failed = shown(notebook.run_cell("check-6-3"))
    assert "not yet" in failed and re.search(r"line \d+", failed), failed
    photograph(page, notebook, "check-6-3", "06_race.png")


@pytest.mark.slow(nightly=True)
@pytest.mark.sampled
@pytest.mark.parametrize(
    "lesson",
    [lesson for lesson in select([])[1:] if lesson.name != "glossary"],
    ids=lambda lesson: lesson.name,
)
def test_a_lesson_from_the_first_cell_to_the_last(opened, lesson):
    """Every exercise is typed in; then the whole notebook runs."""
    page, notebook = opened(lesson.name)
    answers = answers_to(lesson)
    for cell_id, answer in answers.items():
        notebook.type_into(cell_id, answer)
    finished = notebook.run_all()
    cells = [cell for cell in notebook.cells() if cell["cell_type"] == "code"]
    errors = [
        (cell["id"], output["ename"], output["evalue"])
        for cell in cells
        for output in cell["outputs"]
        if output["output_type"] == "error"
    ]
    state = [(cell["id"], cell["execution_count"], len(cell["outputs"])) for cell in cells]
    assert (finished, errors) == (True, []), state
    passed = [
        cell for cell in cells if cell["id"].startswith("check-") and ": passed" in shown(cell)
    ]
    assert len(passed) == len(answers)
    assert page.locator(".jp-Notebook img").count() >= (2 if answers else 1)
    assert page.console_errors == []
