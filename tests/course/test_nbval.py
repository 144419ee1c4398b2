"""nbval as a stranger runs it, with no options but its own name."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest

from lessons_lib.paths import NOTEBOOKS, ROOT


@pytest.fixture
def folder():
    """A folder in the course, where pytest looks for the course's settings."""
    (ROOT / ".build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".build") as name:
        yield Path(name)


def pytest_here(*words) -> subprocess.CompletedProcess:
    """Runs pytest in the course's folder."""
    own = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)


def picture_and_word(folder: Path, word: str) -> Path:
    """A notebook that showed another picture than the one it shows now, and this word."""
    now, before = (
        {
            "text/html": f'<img alt="{alt}" src="data:image/png;base64,{data}">',
            "text/plain": "x",
        }
        for alt, data in [("the same word", "bm93"), (word, "YmVmb3Jl")]
    )
    cell = nbformat.v4.new_code_cell(
        f"display({now}, raw=True)",
        execution_count=1,
        outputs=[nbformat.v4.new_output("display_data", before)],
    )
    path = folder / f"{word.split()[0]}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


@pytest.mark.slow
def test_a_picture_may_differ_in_its_bytes_and_a_word_may_not(folder):
    words = "the same word", "another word"
    run = pytest_here("--nbval", *(picture_and_word(folder, word) for word in words))
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert re.search(r"FAILED .*/another\.ipynb", run.stdout)
    assert "another word" in run.stdout


@pytest.mark.slow
def test_a_notebook_that_is_handed_out_fails_only_where_an_answer_is_missing():
    run = pytest_here("--nbval-lax", NOTEBOOKS / "00_start_here.ipynb")
    failed = run.stdout.count("Cell execution caused an exception")
    missing = re.findall(
        r"^NotAttempted: |m?NotImplementedError\S*: Exercise", run.stdout, re.M
    )
    assert run.returncode == 1 and len(missing) == failed > 1, run.stdout
