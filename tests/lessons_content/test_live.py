"""Views that follow a learner's own objects, in a real JupyterLab."""

import re

import nbformat
import pytest

from jupyterlab_driver import Notebook, faults, jupyterlab, notebook_of, page_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]

POOL = [
    """
from lessons_content.lesson_01.pictures import LivePool
from paged_attention.pool.block_manager import PythonBlockManager

class BlockManager(PythonBlockManager):
    def free(self, block_id):
        self.free_blocs.append(block_id)

    def increase_ref_count(self, block_id):
        raise NotImplementedError("Exercise 1.2")

live = LivePool(BlockManager, num_blocks=4)
live.manager.allocate()
live""",
    "live.manager.allocate(); live.manager.allocate()",
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory, browser):
    """One for all views: they share its page and its kernel."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder) as address, page_of(browser) as page:
        nbformat.write(notebook_of(), folder / "notebooks/live.ipynb")
        notebook = Notebook(page, *address, "live.ipynb")
        notebook.close_side_bar()
        yield notebook


@pytest.fixture
def opened(notebook):
    """Shows these cells, and runs the first. Gives the page and notebook."""

    def show(*sources):
        notebook.show(*sources)
        outputs = notebook.run_cell("0")["outputs"]
        assert [each["output_type"] for each in outputs] == ["display_data"] * 2, outputs
        notebook.page.wait_for_selector(".live .cell")
        return notebook.page, notebook

    return show


def labels(page) -> list[str]:
    """What a screen reader says of the pool's blocks."""
    return page.locator(".live [aria-label=pool] [role=gridcell]").evaluate_all(
        "cells => cells.map(cell => cell.getAttribute('aria-label'))"
    )


def wait_for(page, words: str) -> None:
    """Until the view, or its alert, says this."""
    page.locator(".live [role=status], .live [role=alert]", has_text=words).wait_for()


def test_a_pool_follows_buttons_and_cells_and_stays_when_an_answer_raises(opened):
    page, notebook = opened(*POOL)
    assert page.locator("[data-live]").is_hidden()  # the still
    assert [label for label in labels(page) if "free" not in label] == ["block 0, one user"]
    page.get_by_role("button", name="allocate()").focus()
    page.keyboard.press("Enter")
    wait_for(page, "allocate() gives block 1.")
    assert labels(page)[1] == "block 1, one user"
    assert page.get_by_role("spinbutton", name="Block", exact=True).input_value() == "1"

    before = labels(page)
    page.get_by_role("button", name="free(block)").click()
    wait_for(page, "AttributeError")
    (alert,) = page.get_by_role("alert").all_inner_texts()
    assert re.search(r"raised in line \d+: `self.free_blocs.append\(block_id\)`", alert), alert
    page.get_by_role("button", name="increase_ref_count").click()
    wait_for(page, "exercise 1.2, which is not written yet")
    page.locator(".live [aria-label='block 2, free']").click()  # chooses it
    assert page.get_by_role("spinbutton", name="Block", exact=True).input_value() == "2"
    assert labels(page) == before
    assert faults(page, ".live") == []

    notebook.run_cell("1")
    wait_for(page, "allocate() gives block 3.")
    assert "0 of 4 blocks are free" in page.inner_text(".live .numbers")
    page.get_by_role("button", name="allocate()").click()
    wait_for(page, "OutOfBlocksError")

    page.get_by_role("spinbutton", name="Number of blocks").fill("6")
    page.keyboard.press("Tab")
    wait_for(page, "all 6 blocks are free")
    assert len(labels(page)) == 6 and all("free" in label for label in labels(page))
    page.get_by_role("spinbutton", name="Number of blocks").fill("0")
    page.keyboard.press("Tab")
    wait_for(page, "PoolSizeError")
    page.get_by_role("spinbutton", name="Number of blocks").fill("100000")
    page.keyboard.press("Tab")
    wait_for(page, "Number of blocks: at most 2,000 can be shown here.")
    assert len(labels(page)) == 6
    assert page.console_errors == []


TABLES = [
    """
from lessons_content.lesson_02.pictures import LiveTables
from paged_attention.pool.block_manager import PythonBlockManager
from paged_attention.pool.kv_cache import PagedAttentionManager

live = LiveTables(PagedAttentionManager, PythonBlockManager, num_blocks=8, block_size=4)
live.manager.add_sequence(0, 6)
live""",
    "live.manager.fork_sequence(0, 500); live.manager.append_token(500)",
]


def test_tables_show_a_copy_and_refuse_what_does_not_fit(opened):
    page, notebook = opened(*TABLES)
    page.get_by_role("button", name="fork_sequence").click()
    wait_for(page, "fork_sequence(0, 1): sequence 1 shares blocks [0, 1].")
    page.get_by_role("button", name="append_token").click()  # of the new one
    wait_for(page, "append_token(1): block 1 is shared, so it is copied to 2.")
    assert "block 2, seq 1, 3 of 4 tokens" in labels(page)
    assert faults(page, ".live") == []
    before = labels(page)
    page.get_by_role("spinbutton", name="Tokens").fill("99")
    page.get_by_role("button", name="add_sequence").click()
    wait_for(page, "DuplicateSequenceError")
    assert labels(page) == before
    notebook.run_cell("1")
    wait_for(page, "append_token(500): block 1 is shared, so it is copied to 3.")
    assert "block 3, seq 500, 3 of 4 tokens" in labels(page)
    page.get_by_role("spinbutton", name="Block size").fill("8")
    page.keyboard.press("Tab")
    wait_for(page, "the pool is empty")
    assert page.console_errors == []


ENGINE = [
    """
from lessons_content.lesson_08.pictures import LiveEngine
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.tiny_qwen3.tasks import decode, encode

model = load_model()
prompt = encode("Ka17..q42......z93c21......k45..?aq>")
live = LiveEngine(Engine, model, [prompt, prompt, encode("Szebra>")], decode)
live""",
    "live.engine.add('mine', encode('Cq7b>')); live.engine.run()",
]


def test_an_engine_runs_and_pauses_and_its_policy_can_be_changed(opened):
    page, notebook = opened(*ENGINE)
    for said in ("A reads 36", "A decodes", "B finds 32 and reads 4 tokens; A decodes."):
        page.get_by_role("button", name="Step", exact=True).click()
        wait_for(page, said)
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(page, "All are answered.")
    page.get_by_role("button", name="Run", exact=True).wait_for()  # it has come to its end
    kept = [label for label in labels(page) if "kept for later" in label]
    assert len(kept) == 2
    assert faults(page, ".live") == []

    page.get_by_role("combobox", name="Prefix sharing").select_option("off")
    wait_for(page, "Nobody is here yet.")
    for said in ("A reads 36", "A decodes", "B reads 36 tokens; A decodes."):
        page.get_by_role("button", name="Step", exact=True).click()
        wait_for(page, said)
    page.get_by_role("spinbutton", name="Number of blocks").fill("2")
    page.keyboard.press("Tab")
    wait_for(page, "Nobody is here yet.")
    page.get_by_role("button", name="Step", exact=True).click()
    wait_for(page, "PromptTooLongError")
    page.get_by_role("spinbutton", name="Number of blocks").fill("30")
    page.keyboard.press("Tab")
    page.wait_for_selector(".live .problem:empty", state="attached")
    notebook.run_cell("1")
    wait_for(page, "mine decodes.")
    assert page.console_errors == []
