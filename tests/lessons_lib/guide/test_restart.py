"""After a restart, a missing name says which cells make it, and what they need in turn."""

import json
import os
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from lessons_command import jupyterlab
from lessons_guide import misspelt, restart
from lessons_lib import progress, verbs
from lessons_lib.paths import NOTEBOOKS
from paged_attention import kv_cache

MENU = (
    "Run ▸ Run All Above Selected Cell in the menu runs everything above, up to a check that "
    "fails."
)
CELLS = [
    ("markdown", "# 01 · A lesson"),
    ("code", "from lessons_lib import check\n\ndraw = 1"),
    ("markdown", "## The pool\n\nText."),
    ("code", "import torch\nfrom a.b import c as d"),
    ("code", "sizes = [torch.ones(n) for n in (1, 2)]\ntable = {}"),
    ("code", "table['a'] = sizes[0]"),
    ("markdown", "### Exercise 1.1: one"),
    ("code", "def answer(x):\n    raise NotImplementedError('Exercise 1.1')"),
    ("code", 'check("1.1", answer)'),
    ("code", "sizes.append(3)\nunrelated = 1"),
    ("code", "def show(table, key):\n    return table[key], sizes\n\n\nshow(table, 'a')"),
    ("code", "sizes = []"),
    ("code", "%magic\nnot Python"),
]


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    cells = [{"cell_type": kind, "source": [text]} for kind, text in CELLS]
    (tmp_path / "01_topic.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(restart, "NOTEBOOKS", tmp_path)
    restart._cells.cache_clear()
    yield "01"
    restart._cells.cache_clear()


def told(name, running, lesson, known=()):
    """The lines between the first and the last, which say what to run."""
    card = restart.explain(name, running, lesson, known)
    assert card.title == (
        f"{name} comes from a cell that has not run yet, or not since a restart"
    )
    first, *cells, last = card.body.split("\n")
    number = "this cell" if len(cells) == 1 else f"these {len(cells)} cells, in this order"
    assert (
        first == f"Run {number}, and then the one that failed (a click, then Shift+Enter):"
        and last == MENU
    )
    return cells


def test_a_check_after_a_restart_needs_the_first_cell_and_the_answer(lesson):
    first, answer = told("check", 'check("1.1", answer)', lesson)
    assert first == "`from lessons_lib import check` at the top of the notebook"
    assert answer == "`def answer(x):` below “Exercise 1.1: one”"
    assert told("answer", 'check("1.1", answer)', lesson, known={"check"}) == [answer]


def test_what_fills_a_list_or_a_table_is_run_too_but_nothing_else(lesson):
    running = CELLS[10][1]
    assert told("sizes", running, lesson) == [
        "`import torch` below “The pool”",
        "`sizes = [torch.ones(n) for n in (1, 2)]` below “The pool”",
        "`table['a'] = sizes[0]` below “The pool”",
        "`sizes.append(3)` below “Exercise 1.1: one”",
    ]


def test_a_cell_that_was_edited_is_found_by_what_it_makes(lesson):
    """What comes after it does not count: there `sizes` is made once more."""
    edited = "def show(table, key):\n    print(sizes)\n\n\nshow(table, 'b')"
    assert "`sizes = []`" not in "".join(told("sizes", edited, lesson))
    assert told("sizes", "print(sizes)", lesson) == ["`sizes = []` below “Exercise 1.1: one”"]


@pytest.mark.parametrize("name", ["len", "nothing", "n", "x"])
def test_a_name_that_no_cell_makes_says_nothing(lesson, name):
    """`n` and `x` are made in a comprehension and a function, and stay there."""
    assert restart.explain(name, f"print({name})", lesson, ()) is None


@pytest.mark.parametrize("source", ["check('1.1', f)", 'draw = open_lesson("01")'])
def test_the_lesson_is_known_from_a_cell_that_names_it(lesson, source):
    assert told("draw", f"{source}; draw", None) == [
        "`from lessons_lib import check` at the top of the notebook"
    ]
    assert restart.explain("draw", "print(draw)", None, ()) is None


def test_a_lesson_that_cannot_be_read_says_nothing(lesson, tmp_path):
    (tmp_path / "02_topic.ipynb").write_text("no JSON")
    for number in ("02", "77"):
        assert restart.explain("check", "check", number, ()) is None


def test_only_some_of_many_cells_are_listed(tmp_path, monkeypatch):
    texts = ["a0 = 0", *(f"a{n} = a{n - 1}" for n in range(1, 15))]
    cells = [{"cell_type": "code", "source": text} for text in texts]
    (tmp_path / "03_topic.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(restart, "NOTEBOOKS", tmp_path)
    restart._cells.cache_clear()
    lines = restart.explain("a14", "a14", "03", ()).body.split("\n")
    first = "Run these 15 cells, in this order, and then the one that failed"
    assert lines[0] == f"{first} (a click, then Shift+Enter):"
    assert lines[1] == "`a0 = 0` at the top of the notebook" and lines[-2] == "and 3 more"
    restart._cells.cache_clear()


@pytest.mark.parametrize(
    "session, number",
    [
        ("notebooks/01_block_manager.ipynb", "01"),
        ("/home/me/course/01_block_manager (0.2).ipynb", "01"),
        ("summary.ipynb", "summary"),
        ("mine.ipynb", None),
        (None, None),
    ],
)
def test_the_kernel_knows_its_lesson_from_its_notebooks_name(monkeypatch, session, number):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert restart.lesson_of_this_kernel() == number


def test_an_answer_that_uses_a_name_of_a_cell_above_is_told_so(tmp_path, monkeypatch, capsys):
    """It is not remembered as a mistake."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path))
    scope = {}
    text = "def blocks_needed(num_tokens, block_size):\n    return [limit for _ in '1'][0]\n"
    exec(text, scope)
    with pytest.raises(verbs.CheckFailed):
        verbs.check("0.1", scope["blocks_needed"])
    out = capsys.readouterr().out
    assert "NameError: name 'limit' is not defined" in out
    assert "› limit comes from a cell that has not run yet, or not since a restart" in out
    assert "`limit = 512` below “What contiguous memory wastes”" in out
    assert progress.load() == {}
    scope["limit"] = 3
    with pytest.raises(verbs.CheckFailed):
        verbs.check("0.1", scope["blocks_needed"])
    assert "limit comes" not in capsys.readouterr().out and progress.load()["0.1"]["mistakes"]


def test_an_answer_that_uses_a_name_of_a_cell_below_is_told_that_the_check_fails_again(
    monkeypatch, tmp_path, capsys
):
    """One above its own is told as ever."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path))
    scope = dict(vars(kv_cache))
    exec("def add_sequence(self, seq_id, n):\n    append_token(self, seq_id)\n", scope)
    with pytest.raises(verbs.CheckFailed):
        verbs.check("2.4", scope["add_sequence"])
    _, card = capsys.readouterr().out.split("› ")
    title, _, cell, last = card.strip().split("\n")
    assert title.startswith("append_token comes from a later cell, which has not run yet")
    assert cell.strip().startswith("`def append_token(") and "Exercise 2.5: append" in cell
    assert last.strip().endswith("the check comes first, and fails again.")
    exec("def append_token(self, seq_id):\n    return operator.index(seq_id)\n", scope := {})
    above = restart.missing_in(scope["append_token"], "02")
    assert above.title.startswith("operator comes from a cell that") and MENU in above.body


def test_a_misspelt_answer_is_named_before_a_cell_that_has_not_run(capsys):
    shell = InteractiveShell()
    with mock.patch("IPython.get_ipython", lambda: shell):
        misspelt.watch("00")
    shell.user_ns["In"].append("blocks_needed")
    shell.run_cell("blocks_needed")
    assert "def blocks_needed(num_tokens, block_size):" in capsys.readouterr().out
    shell.run_cell("def block_needed(n, size): return n")
    shell.run_cell("blocks_needed")
    out = capsys.readouterr().out
    assert "You have written `block_needed`" in out and "has not run" not in out


@pytest.fixture(scope="module")
def kernel():
    """A kernel as JupyterLab starts it for a lesson, just restarted."""
    paths = jupyterlab.environment({})["JUPYTER_PATH"].split(os.pathsep)
    specs = KernelSpecManager(kernel_dirs=[f"{path}/kernels" for path in paths])
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
    name = str(next(NOTEBOOKS.glob("02_*.ipynb")))
    manager.start_kernel(env=os.environ | {"JPY_SESSION_NAME": name})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=900)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(kernel, text):
    found = []
    kernel.execute_interactive(text, timeout=900, output_hook=found.append)
    return [message["content"] for message in found if message["msg_type"] != "status"]


@pytest.mark.parametrize(
    "text, name, cell",
    [
        ('check("2.1", count_pieces)', "check", "`from lessons_lib import check, hint, "),
        ("pool = torch.zeros(3)", "torch", "`import torch`"),
    ],
)
def test_a_kernel_that_has_run_nothing_of_the_course_says_what_to_run(
    kernel, text, name, cell
):
    error, card = (each for each in outputs(kernel, text) if "code" not in each)
    assert (error["ename"], error["evalue"]) == ("NameError", f"name '{name}' is not defined")
    shown = card["data"]["text/plain"]
    assert shown.startswith(f"› {name} comes from a cell that has not run yet, or not")
    assert cell in shown and MENU in shown and "text/html" in card["data"]


def test_it_says_nothing_of_names_that_the_lesson_does_not_know(kernel):
    assert [each["ename"] for each in outputs(kernel, "mine") if "ename" in each] == [
        "NameError"
    ]
    assert not any("data" in each for each in outputs(kernel, "mine"))
