"""What ruff does not see: wide lines in lessons' cells, in C++ and CUDA; lost pictures."""

import ast
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


def lost_pictures(code: str) -> list[str]:
    """Calls of `draw` whose picture nobody sees: Jupyter shows what the last line gives."""
    lines = [line for line in code.splitlines() if not line.startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    return [
        ast.unparse(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.Expr)
        and each not in tree.body[-1:]
        and ast.unparse(each).startswith("draw.")
    ]


def test_a_picture_in_the_middle_of_a_cell_is_lost():
    assert lost_pictures("draw.a(1)\nprint()\ndraw.b()") == ["draw.a(1)"]
    assert lost_pictures("for n in 1, 2:\n    draw.a(n)") == ["draw.a(n)"]
    assert lost_pictures("# nothing yet") == []


@pytest.mark.parametrize("lesson", build.select([]), ids=lambda lesson: lesson.name)
def test_each_picture_is_seen(lesson):
    code = [cell for cell in lesson.cells if cell.kind != "markdown"]
    assert [lost for cell in code for lost in lost_pictures(cell.solution())] == []


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
