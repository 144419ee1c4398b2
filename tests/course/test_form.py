"""How wide lines are where ruff does not look: in lessons' cells, and in C++ and CUDA."""

import tomllib

import pytest

from lessons_lib.paths import ROOT
from tools.notebooks import build

COLUMNS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"]


def wide_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > COLUMNS]


@pytest.mark.parametrize("lesson", build.select([]), ids=lambda lesson: lesson.name)
def test_no_line_of_a_cell_is_wide(lesson):
    for cell in lesson.cells:
        if cell.kind != "markdown":
            assert wide_lines(cell.student()) + wide_lines(cell.solution()) == []


def test_no_line_of_cpp_is_wide():
    """A stub may be: it is one line, and learners get it without the comment's first words."""
    assert [
        f"{path.relative_to(ROOT)}: {line}"
        for folder in ("kernels", "lessons_*", "tests")
        for path in ROOT.glob(f"{folder}/**/*")
        if path.suffix in (".h", ".cpp", ".cu", ".cuh")
        for line in wide_lines(path.read_text(encoding="utf-8"))
        if " STUB: " not in line
    ] == []
