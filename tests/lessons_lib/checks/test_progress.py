"""What is remembered of a learner: nothing is lost when two notebooks are open, and nothing of
ours gets in.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from lessons_lib import progress
from lessons_lib.paths import NOTEBOOKS, ROOT, SOLUTIONS

RIGHT = "def blocks_needed(num_tokens, block_size):\n    return -(-num_tokens // block_size)"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A learner who has not begun."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path / "progress"))
    monkeypatch.setattr(progress, "_in_solutions", {})
    return tmp_path / "progress"


def test_two_kernels_that_record_at_once_lose_nothing(folder):
    program = (
        "import sys; from lessons_lib import progress\n"
        "sys.stdin.read(1)\n"
        "for number in range(100):\n"
        "    progress.remember(f'{sys.argv[1]}.{number}', True, f'm{number}')"
    )
    kernels = [
        subprocess.Popen(
            [sys.executable, "-c", program, kernel], cwd=ROOT, stdin=subprocess.PIPE
        )
        for kernel in "123"
    ]
    for kernel in kernels:
        kernel.stdin.close()
    assert [kernel.wait() for kernel in kernels] == [0, 0, 0]
    assert progress.load() == {
        f"{kernel}.{number}": {"passed": True, "mistakes": [f"m{number}"]}
        for kernel in (1, 2, 3)
        for number in range(100)
    }
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "progress.json"]


@pytest.mark.heavy
@pytest.mark.parametrize("lesson", ["00", "02"])
def test_a_solution_notebook_run_from_elsewhere_writes_nothing_of_the_learners(
    tmp_path, folder, lesson
):
    """A copy of it, as a learner may make for comparison."""
    (source,) = SOLUTIONS.glob(f"{lesson}_*.ipynb")
    execute(shutil.copy(source, tmp_path))
    assert progress.load() == {} and not (folder / "parts").exists()


@pytest.mark.heavy
def test_a_learners_notebook_writes_what_it_passed(tmp_path, folder):
    (source,) = NOTEBOOKS.glob("00_*.ipynb")
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("exercise") == "0.1" and cell.source.startswith("def"):
            cell.source = RIGHT
    check = [cell.metadata.get("check") for cell in notebook.cells].index("0.1")
    del notebook.cells[check + 1 :]  # what comes later may have stubs
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    execute(tmp_path / "mine.ipynb")
    assert progress.load()["0.1"]["passed"] and (folder / "parts/0.1").exists()


def execute(path):
    path = Path(path)
    nbclient.NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()


@pytest.mark.heavy
@pytest.mark.parametrize("marks, passed", [("    # BEGIN SOLUTION\n", False), ("", True)])
def test_a_script_of_our_solution_writes_nothing_either(tmp_path, marks, passed):
    script = (
        RIGHT.replace("\n", f"\n{marks}", 1)
        + "\nfrom lessons_lib import check\ncheck('0.1', blocks_needed)\n"
    )
    (tmp_path / "script.py").write_text(script)
    subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        check=True,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ("0.1" in progress.load()) == passed


def test_in_the_folder_of_solutions_a_notebook_has_a_record_of_its_own(folder, monkeypatch):
    monkeypatch.chdir(SOLUTIONS)
    progress.remember("0.1", True, None)
    progress.remember("0.1", False, "floor-division")
    assert (
        progress.load() == {"0.1": {"passed": True, "mistakes": ["floor-division"]}}
        and not folder.exists()
    )
    monkeypatch.chdir(folder.parent)
    assert progress.load() == {}
