"""What the course hands out is what its sources give, even when somebody has typed answers
into `notebooks/`: no reader shows them, and nothing with them in it leaves the course.
"""

import json
import shutil
import subprocess

import pytest

from course_versions import answer, write
from lessons_lib.guide import handed_out, show_cells
from lessons_lib.paths import NOTEBOOKS, ROOT
from lessons_lib.start import learner_copies
from python_process import python

FIRST = "00_start_here.ipynb"
LOOP = "def blocks_needed(num_tokens, block_size):\n    while True: pass"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone in which a learner has answered exercise 0.1 in the course's own notebook."""
    here = tmp_path_factory.mktemp("a clone") / "the course"
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, files.stdout.split("\0")):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, here / name)
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "the course"]):
        subprocess.run(["git", *name, *words], cwd=here, check=True)
    answer(here / "notebooks" / FIRST, e0_1=LOOP)
    return here


@pytest.mark.slow
def test_what_was_given_is_shown_and_that_nobody_works_in_that_folder(clone):
    script = (
        "import os; from lessons_lib.guide.show_cells import stub; stub('0.1');"
        "from lessons_lib.guide.restart import cells_above; print(cells_above('', '00'));"
        "from lessons_lib.guide.progress_page import page; print(page().lessons[0].title);"
        "from lessons_lib import open_lesson; open_lesson('00');"
        "print('NOTEBOOKS'); os.chdir('notebooks'); open_lesson('00')"
    )
    shown, there = python("-c", script, cwd=clone, PYTHONPATH=str(clone)).stdout.split(
        "NOTEBOOKS"
    )
    assert 'raise NotImplementedError("Exercise 0.1")' in shown and "while True" not in shown
    assert "CodeCell(" in shown and "00 · Start here" in shown
    own = "This is the course's own copy. Work in yours: `make lab OPEN=no` makes it."
    assert own in there and "own copy" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["-m", "tools.site", "--prepare"],
        ["-m", "tools.notebooks", "--handed-out"],  # `python -m tools.wheel`
        ["-m", "pip", "wheel", "--no-deps", "--wheel-dir", "wheels", "."],
    ],
    ids=["site", "tools.wheel", "wheel"],
)
def test_site_and_wheel_refuse_in_one_sentence_that_names_the_notebook(clone, words):
    done = python(*words, cwd=clone, PYTHONPATH=str(clone))
    said = [line for line in (done.stdout + done.stderr).split("\n") if "notebooks/" in line]
    assert done.returncode and len(said) == 1
    assert f"notebooks/{FIRST} has been changed by hand, and may hold somebody's" in said[0]
    assert "while True" not in done.stdout + done.stderr
    assert not [*clone.glob("wheels/*")] and not (clone / ".build/site/source").exists()


def test_a_notebook_that_was_only_run_and_one_that_is_broken_are_told_too(tmp_path):
    shutil.copy(NOTEBOOKS / FIRST, tmp_path)
    assert not handed_out.changed(tmp_path)
    answer(tmp_path / FIRST)
    (tmp_path / "01_a.ipynb").write_text("<<<<<<< Updated upstream")
    ran, broken = handed_out.changed(tmp_path)
    assert FIRST in ran and "holds outputs" in ran
    assert "01_a.ipynb has been changed" in broken


def test_a_first_cell_says_that_a_new_version_is_beside_it(tmp_path, monkeypatch, capsys):
    """On a hub, only the log says so otherwise."""
    mine = tmp_path / FIRST
    shutil.copytree(NOTEBOOKS, tmp_path / "old")
    older = json.loads((NOTEBOOKS / FIRST).read_text())
    older["cells"][0]["source"] = "An earlier text."
    handed_out.stamp(older)
    write(tmp_path / "old" / FIRST, older)
    learner_copies.bring(tmp_path / "old", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JPY_SESSION_NAME", str(mine))
    show_cells.say_whose_notebook_it_is()
    answer(mine, e0_1=LOOP)
    assert capsys.readouterr().out == ""
    (offer,) = learner_copies.bring(NOTEBOOKS, tmp_path).beside
    show_cells.say_whose_notebook_it_is()
    assert f"with your answers, is beside it: {offer.new}" in capsys.readouterr().out
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / offer.new))
    show_cells.say_whose_notebook_it_is()
    assert capsys.readouterr().out == ""
