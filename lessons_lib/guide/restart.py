"""Says which cells to run if a name is missing, for example after a restart of the kernel.

The lesson's notebook shows which cell makes a name, and which other names that cell needs.
"""

import ast
import builtins
import dis
import functools
import os
import re
import symtable
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lessons_lib.display import Card
from lessons_lib.guide import handed_out
from lessons_lib.paths import NOTEBOOKS

MOST_LISTED = 12
IN_THE_MENU = (
    "Run ▸ Run All Above Selected Cell in the menu runs everything above, up to a check that "
    "fails."
)
_SCOPES = (
    *(ast.FunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_EXERCISE = re.compile(r"""\b(?:check|hint|solution)\(["'](\d+)\.\d+["']""")
_LESSON = re.compile(r"""\bopen_lesson\(["'](\w+)["']\)|Exercise (\d+)\.\d+""")


@dataclass(frozen=True)
class CodeCell:
    """A cell of a lesson.

    heading: the heading above it, "" if there is none.
    makes: the names that it defines.
    changes: names of objects that it changes, such as a list that it fills.
    needs: names that it uses and does not define.
    """

    source: str
    heading: str
    makes: frozenset[str]
    changes: frozenset[str]
    needs: frozenset[str]

    def in_words(self) -> str:
        """The cell's place, and its first line."""
        lines = [line for line in self.source.split("\n") if line.strip()]
        first = next((line for line in lines if not line.startswith(("#", "@"))), "")
        first = first if len(first) <= 60 else f"{first[:59]}…"
        where = f"below “{self.heading}”" if self.heading else "at the top of the notebook"
        return f"`{first}` {where}"


def explain(name: str, running: str, lesson: str | None, known: Container[str]) -> Card | None:
    """Says what to run before the cell that raised a NameError; None if no cell makes the
    name.

    running: the text of that cell.
    lesson: its number, if it is known.
    known: the names that the kernel has.
    """
    lesson = lesson or _lesson_in(running)
    cells = cells_of(lesson) if lesson else ()
    place = _place(running, cells)
    wanted = {name, *_names_in(running)[2]}
    if not (missing := _needed(wanted, cells[:place], known)) or not any(
        name in cell.makes for cell in missing
    ):
        return None
    return _card(name, missing)


def missing_in(answer: Any, lesson: str) -> Card | None:
    """Says what to run before a check if the answer uses names that the kernel lacks.

    answer: a function or class. Any other object uses no names.
    """
    cells = cells_of(lesson)
    for function in _functions(answer):
        here = {*function.__globals__, *vars(builtins)}
        for name in _global_names(function.__code__):
            missing = _needed({name}, cells, here) if name not in here else []
            if missing:
                return _card(name, missing, _comes_later(name, answer, cells))
    return None


def _comes_later(name: str, answer: Any, cells: tuple[CodeCell, ...]) -> bool:
    """Whether a name is made only in cells below the answer's cell."""
    own = _first_that_makes(getattr(answer, "__name__", ""), cells)
    return own is not None and _first_that_makes(name, cells[: own + 1]) is None


def _first_that_makes(name: str, cells: tuple[CodeCell, ...]) -> int | None:
    return next((n for n, cell in enumerate(cells) if name in cell.makes), None)


def is_a_lessons(running: str, lesson: str | None) -> bool:
    """Whether a cell's text is one of the lesson, unchanged."""
    return bool(lesson) and running.strip() in {
        cell.source.strip() for cell in cells_of(lesson)
    }


def lesson_of_this_kernel() -> str | None:
    """The lesson of this kernel's notebook, by the name that Jupyter's server gives."""
    stem = Path(os.environ.get("JPY_SESSION_NAME", "")).stem
    found = re.match(r"(\d\d)_|summary", stem)
    return (found[1] or found[0]) if found else None


def _card(name: str, missing: list[CodeCell], is_later: bool = False) -> Card:
    """The card for the learner: the cells in order, and the command that runs them all.

    is_later: whether these cells are below the cell that failed.
    """
    lines = [
        *to_run(missing),
        "When the cells run from top to bottom, the check comes first, and fails again."
        if is_later
        else IN_THE_MENU,
    ]
    whose = "a later cell, which" if is_later else "a cell that"
    title = f"{name} comes from {whose} has not run yet, or not since a restart"
    return Card(title, "\n".join(lines))


def to_run(missing: Sequence[CodeCell]) -> list[str]:
    """The text about cells to run: a first line, and then a line for each cell."""
    shown = [cell.in_words() for cell in missing[:MOST_LISTED]]
    if left := len(missing) - len(shown):
        shown.append(f"and {left} more")
    which = "this cell" if len(missing) == 1 else f"these {len(missing)} cells, in this order"
    return [f"Run {which}, and then the one that failed (a click, then Shift+Enter):", *shown]


def cells_above(running: str, lesson: str) -> tuple[CodeCell, ...]:
    """A lesson's cells above the running one.

    All cells if the running one is not the lesson's.
    """
    cells = cells_of(lesson)
    return cells[: _place(running, cells)]


def _needed(names: Iterable[str], cells: tuple[CodeCell, ...], known) -> list[CodeCell]:
    """The cells that make these names, and the cells that they need in turn, in order."""
    found: set[int] = set()
    wanted = [(name, len(cells)) for name in sorted(names)]
    while wanted:
        name, end = wanted.pop()
        if name in known or hasattr(builtins, name):
            continue
        made = next((n for n in reversed(range(end)) if name in cells[n].makes), None)
        if made is None:
            continue
        filled = {n for n in range(made, end) if name in cells[n].changes}
        for number in {made, *filled} - found:
            found.add(number)
            wanted += sorted((each, number) for each in cells[number].needs)
    return [cells[number] for number in sorted(found)]


def _place(running: str, cells: tuple[CodeCell, ...]) -> int:
    """The running cell's number: it has the same text, or else the same names."""
    texts = [cell.source.strip() for cell in cells]
    if running.strip() in texts:
        return texts.index(running.strip())
    makes = _names_in(running)[0]
    alike = [
        (len(cell.makes), -number)
        for number, cell in enumerate(cells)
        if cell.makes and cell.makes <= makes
    ]
    return -max(alike)[1] if alike else len(cells)


def _lesson_in(source: str) -> str | None:
    """The number of the lesson, if the cell's text names it."""
    if found := _EXERCISE.search(source):
        return f"{int(found[1]):02d}"
    if found := _LESSON.search(source):
        return found[1] or f"{int(found[2]):02d}"
    return None


@functools.cache
def cells_of(lesson: str) -> tuple[CodeCell, ...]:
    """The code cells of a lesson's notebook; none if it cannot be read."""
    try:
        path = next(iter(sorted(NOTEBOOKS.glob(f"{lesson}*.ipynb"))))
        return tuple(_code_cells(handed_out.read(path)["cells"]))
    except (StopIteration, OSError, handed_out.Changed):
        return ()


def _code_cells(cells: list[dict]) -> Iterator[CodeCell]:
    heading, modules = "", set[str]()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            headings = re.findall(r"^##+ (.*)$", source, re.MULTILINE)
            heading = headings[-1] if headings else heading
        else:
            makes, changes, needs = _names_in(source)
            modules |= _never_changed(source)
            yield CodeCell(source, heading, makes, changes - modules, needs)


def _never_changed(source: str) -> set[str]:
    """The modules that a cell imports or opens. A call such as `torch.manual_seed(0)` or
    `draw.layouts(…)` does not count as a change of the module.
    """
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError):
        return set()
    imports = [node for node in nodes if isinstance(node, ast.Import)]
    opened = re.findall(r"^(\w+) = open_lesson\(", source, re.MULTILINE)
    return {*opened, *(name for node in imports for name in _made_by(node))}


def _names_in(source: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The names that a cell makes, changes and needs."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset(), frozenset(), frozenset()
    makes = {name for node in _outside_functions(tree) for name in _made_by(node)}
    changes = {name for node in _outside_functions(tree) for name in _changed_by(node)}
    needs = {*_used_in(symtable.symtable(source, "cell", "exec"))}
    return frozenset(makes), frozenset(changes - makes), frozenset(needs - makes)


def _used_in(scope: symtable.SymbolTable) -> Iterator[str]:
    """The names that a cell uses outside functions, and the global names used inside them."""
    is_cell = scope.get_type() == "module"
    for symbol in scope.get_symbols():
        # From Python 3.12 on, a cell also has the names that its comprehensions assign.
        wanted = not symbol.is_assigned() if is_cell else symbol.is_global()
        if symbol.is_referenced() and wanted:
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from _used_in(inner)


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those inside functions and classes, whose names are local."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _outside_functions(node)


def _made_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _changed_by(node: ast.AST) -> Iterator[str]:
    """`name[…] = …`, `name.part = …`, and the statement `name.method(…)`."""
    stored = isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(
        node.ctx, ast.Store
    )
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    inner: Any = node if stored else node.value.func if called else None  # type: ignore
    if called and not isinstance(inner, ast.Attribute):
        return
    while isinstance(inner, (ast.Subscript, ast.Attribute)):
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield inner.id


def _functions(answer: Any) -> list[Callable]:
    members = vars(answer).values() if isinstance(answer, type) else [answer]
    return [member for member in members if hasattr(member, "__code__")]


def _global_names(code) -> Iterator[str]:
    """The global names that a function's code loads, those of inner functions included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _global_names(constant)
