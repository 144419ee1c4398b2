"""C++ and CUDA in the strings of cells, as a learner sees and types them.

In a real JupyterLab, with the course's extension and without it.
"""

import ast
import io
import json
import tokenize

import pytest

from jupyterlab_driver import Notebook, browser_page, jupyterlab, notebook_of
from lessons_lib.paths import NOTEBOOKS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STACK = '''stack = r"""
#include <vector>

// The last one pushed is the first one popped.
class Stack {
 public:
  int pop() {
    return ids_.back();
  }

 private:
  std::vector<int> ids_;
};
"""
'''
PYTHON = "def double(number):\n    return int(2 * number)  # a comment\n"
# Strings that are no C++, each for another reason.
OTHERS = [
    'query = r"""\nSELECT id\nFROM blocks;\n"""',
    'formula = r"""\n\\begin{align}\na &= \\frac{1}{2} \\\\\n\\end{align}\n"""',
    'text = r"""\nIt is a class of its own,\nusing no memory; nothing\nfor long.\n"""',
    'code = r"""\nclass Stack:\n    def pop(self):\n        return 1\n"""',
    'no_raw = """\n#include <vector>\nint main() {\n  return 0;\n}\n"""',
    'def pop():\n    r"""Pops.\n\n    int pop() {\n    """',
    'one_line = r"int pop() {"',
]
# Strings that are, written in other ways than in the lessons.
FURTHER = [
    "text = R'''\nint pop();\n'''",
    'library = build_cpp(\n    r"""\nint pop();\n""",\n    r"""\nint push();\n"""\n)',
    'texts["a"] = r"""__device__ int pop() {\n  return 1;\n}"""',
    'texts = {\n    "a": r"""\n#pragma once\n"""\n}',
    'unfinished = r"""\nint pop() {\n',
]


class Cells(Notebook):
    """A notebook with any code cells."""

    def __init__(self, page, folder, port, token):
        self.path = folder / "cells.ipynb"
        self.path.write_text(json.dumps(notebook_of()))
        super().__init__(page, port, token, self.path.name)

    def numbers(self) -> list[list[str]]:
        """The line numbers beside each cell; an empty list if there are none."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll('.jp-CodeCell')].map(cell =>
                 [...cell.querySelectorAll('.cm-lineNumbers .cm-gutterElement')]
                   .filter(element => element.style.visibility !== 'hidden')
                   .map(element => element.textContent))"""
        )

    def wait_for_numbers(self, cell: int, count: int):
        """Waits until a cell has `count` line numbers."""
        self.page.wait_for_function(
            """([cell, count]) => document.querySelectorAll('.jp-CodeCell')[cell]
                 .querySelectorAll('.cm-lineNumbers .cm-gutterElement')
                 .length === count + 1""",
            arg=[cell, count],
        )

    def spans(self, cell: int, row: int) -> dict[str, str]:
        """The parts of a row that have a class, and their colours."""
        return self.page.evaluate(
            """([cell, row]) => Object.fromEntries(
                 [...document.querySelectorAll('.jp-CodeCell')[cell]
                   .querySelectorAll('.cm-line')[row - 1].querySelectorAll('span[class]')]
                   .map(span => [span.textContent, getComputedStyle(span).color]))""",
            [cell, row],
        )

    def click_after(self, cell: int, row: int):
        """Puts the cursor at the end of a row."""
        self.cell(f"{cell}").locator(".cm-line").nth(row - 1).click()
        self.page.keyboard.press("End")

    def source(self, cell: int) -> list[str]:
        return self.cells()[cell]["source"].split("\n")

    def output(self, cell: int) -> str:
        outputs = self.cells()[cell]["outputs"]
        return "".join(output.get("text", "") for output in outputs)


@pytest.fixture(scope="module")
def page():
    with browser_page() as page:
        yield page


@pytest.fixture(scope="module")
def cells(page, tmp_path_factory):
    """A notebook in a JupyterLab with the extension."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder) as address:
        yield Cells(page, folder / "notebooks", *address)


@pytest.fixture
def typed(cells):
    """The same, with a cell of C++ and one of Python."""
    cells.show(STACK, PYTHON)
    cells.wait_for_numbers(0, STACK.count("\n") + 1)
    return cells


def messages_count(source: str) -> list[str]:
    """The numbers that messages give the rows of a cell: in a raw string, from its quotes."""
    rows = [str(row) for row in range(1, source.count("\n") + 2)]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING and token.string.startswith('r"""'):
            for row in range(token.start[0] + 1, token.end[0] + 1):
                rows[row - 1] = str(row - token.start[0] + 1)
    return rows


def test_all_cpp_of_the_lessons_is_found_and_numbered_as_in_messages(cells):
    sources = [
        source
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code" and 'r"""' in (source := "".join(cell["source"]))
    ]
    assert len(sources) >= 40
    cells.show(*sources)
    for number, source in enumerate(sources):
        expected = messages_count(source)
        cells.cell(f"{number}").scroll_into_view_if_needed()  # what is far is not drawn
        cells.wait_for_numbers(number, len(expected))
        assert cells.numbers()[number] == expected


def test_a_rule_says_which_strings_are_cpp(cells):
    cells.show(*OTHERS, *FURTHER)
    cells.wait_for_numbers(len(OTHERS) + len(FURTHER) - 1, 3)
    *_, raw, two, assigned, named, unfinished = shown = cells.numbers()
    assert shown[: len(OTHERS)] == [[] for _ in OTHERS]
    assert raw == ["1", "2", "3"]
    assert two == ["1", "2", "2", "3", "5", "2", "3", "8"]
    assert assigned == ["1", "2", "3"]
    assert named == ["1", "2", "2", "3", "5"]
    assert unfinished == ["1", "2", "3"]


def test_words_have_the_theme_s_colours(page, typed):
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        typed.change_theme(theme)
        python = typed.spans(1, 1) | typed.spans(1, 2)
        assert typed.spans(0, 5)["class"] == typed.spans(0, 8)["return"] == python["def"]
        assert typed.spans(0, 12)["int"] == python["int"]
        comment = "// The last one pushed is the first one popped."
        assert typed.spans(0, 4) == {comment: python["# a comment"]}
        string = typed.spans(0, 1)['r"""']
        colours = typed.spans(0, 2) | typed.spans(0, 7) | typed.spans(0, 12)
        assert {"#include", "<vector>", "int", "pop", "ids_"} <= colours.keys()
        assert string not in colours.values()
        assert len({python["def"], python["# a comment"], string}) == 3


def test_enter_indents_as_in_cpp(page, typed):
    keyboard = page.keyboard
    typed.click_after(0, 7)  # int pop() {
    keyboard.press("Enter")
    keyboard.type("if (ids_.empty()) {")
    keyboard.press("Enter")
    keyboard.type("throw 1;")
    keyboard.press("Enter")
    keyboard.type("}")
    assert typed.source(0)[6:12] == [
        "  int pop() {",
        "    if (ids_.empty()) {",
        "      throw 1;",
        "    }",
        "    return ids_.back();",
        "  }",
    ]
    typed.click_after(1, 1)  # def double(number):
    keyboard.press("Enter")
    keyboard.type("if number:")
    keyboard.press("Enter")
    keyboard.type("pass")
    assert typed.source(1)[1:3] == ["    if number:", "        pass"]


def test_a_comment_is_one_of_cpp(page, typed):
    typed.click_after(0, 8)
    page.keyboard.press("Control+/")
    assert typed.source(0)[7] == "    // return ids_.back();"
    typed.click_after(1, 2)
    page.keyboard.press("Control+/")
    assert typed.source(1)[1].startswith("    # return")


def test_jupyterlab_s_own_line_numbers_stay_one_column(page, typed):
    toggle = "() => jupyterapp.commands.execute('notebook:toggle-all-cell-line-numbers')"
    page.evaluate(toggle)
    typed.wait_for_numbers(1, 3)
    expected = [messages_count(source) for source in (STACK, PYTHON)]
    assert typed.numbers() == expected
    page.evaluate(toggle)
    page.wait_for_function(
        "() => document.querySelectorAll('.jp-CodeCell .cm-lineNumbers').length === 1"
    )
    assert typed.numbers() == [expected[0], []]


WRONG_CPP = '''import sys

free_list = r"""
#include <vector>

class FreeList {
 public:
  explicit FreeList(int num_blocks) {}
  int pop() { return wrong; }
};
"""
'''
WRONG_CUDA = '''vector_add = r"""
#include <cuda_runtime.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = a[i] + b[i];  // wrong: past the end
}

extern "C" int add(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
  add_kernel<<<(n + 255) / 256, 256, 0, stream>>>(a, b, out, n);
  return cudaGetLastError();
}
"""
'''


@pytest.mark.parametrize(
    "text, exercise, name",
    [(WRONG_CPP, "1.1", "free_list"), (WRONG_CUDA, "6.1", "vector_add")],
    ids=["compiler", "checked-run"],
)
def test_a_number_agrees_with_a_message(cells, text, exercise, name):
    check = f"from lessons_lib.checks import run\nprint(run({exercise!r}, {name}).message)"
    cells.show(text, check)
    cells.wait_for_numbers(0, text.count("\n") + 1)
    assert cells.run_all()
    row = next(row for row, line in enumerate(text.split("\n")) if "wrong" in line)
    number = cells.numbers()[0][row]
    assert f"line {number}" in cells.output(1)
    assert number == "6" or row == 8  # a string that begins in the third row


def test_a_cell_runs_and_is_saved_as_it_is(page, cells):
    odd = STACK.replace("back();", r"back();  // \n, \d, \"\"\" and …")
    sources = [odd, "print(stack, end='')"]
    cells.show(*sources)
    cells.wait_for_numbers(0, odd.count("\n") + 1)
    assert cells.run_all()
    assert cells.output(1) == ast.literal_eval(odd.removeprefix("stack = ").strip())
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    saved = json.loads(cells.path.read_text(encoding="utf-8"))["cells"]
    assert ["".join(cell["source"]) for cell in saved] == sources
    assert saved[0]["execution_count"] > 0


def test_nothing_went_wrong_in_the_browser(page, cells):
    """Comes after the others, whose page this is."""
    assert page.console_errors == []
