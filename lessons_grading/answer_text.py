"""The text of an answer in a notebook, and how it differs from ours: for a `.mistakes` entry.

Nothing is run here.
"""

import ast
import builtins
import difflib
import re
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lessons_content.mistakes import edits
from lessons_grading.notebook import Notebook
from lessons_lib.checks import Exercise, MistakesError

LARGEST = 20_000  # characters of a cell; ours have a tenth
MOST_EDITS = 3  # more of them, and an answer is another one
_IMPORTS = (ast.Import, ast.ImportFrom)
_BODIES = (ast.FunctionDef, ast.ClassDef)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def answer_text(notebook: Notebook, exercise: Exercise) -> str | None:
    """The last definition of the answer, with what it uses of the notebook's own; or None.

    It has no comments and no docstrings, which are the student's alone.
    """
    defined = _definitions(notebook)
    answer = defined.get(exercise.answer_name)
    if exercise.language != "python":
        match answer:
            case ast.Assign(value=ast.Constant(value=str(text))):
                return _without_comments(text) + "\n"
        return None
    if not isinstance(answer, ast.FunctionDef | ast.ClassDef):
        return None
    known = {*vars(builtins), *getattr(exercise.mistakes, "scope", {}), "torch"}
    needed: dict[str, ast.stmt] = {}
    waiting = [exercise.answer_name]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in defined:
            continue
        needed[name] = defined[name]
        waiting += [each for each in _names(defined[name]) if each not in known]
    # a text begins with a definition or an import; what a body uses may come after it
    found = [*reversed(needed.values())]
    found.sort(
        key=lambda each: (not isinstance(each, _IMPORTS), not isinstance(each, _BODIES))
    )
    parts = dict.fromkeys(map(_plain, found))
    return "\n".join(parts) + "\n"


def as_edits(text: str, exercise: Exercise) -> str | None:
    """The entry's lines that make our answer, or another spelling of it, into this text.

    None if the two are far from each other.
    """
    ours = edits.our_answers()[exercise.id]
    is_python = exercise.language == "python"
    lines = [*_changes(_code_lines(ours, is_python), _code_lines(text, is_python))]
    if len(lines) > MOST_EDITS:
        return None
    entry = "\n".join(textwrap.indent(each, "    ") for each in lines)
    return entry if _makes(entry, ours, text, is_python) else None


def _definitions(notebook: Notebook) -> dict[str, ast.stmt]:
    """What the code cells define at their top level, by name: the last one counts."""
    defined: dict[str, ast.stmt] = {}
    for cell in notebook.cells:
        if len(cell.source) > LARGEST:
            continue
        source = re.sub(r"(?m)^[ \t]*[%!].*$", "", cell.source)
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            defined |= {name: node for node in ast.parse(source).body for name in _named(node)}
    return defined


def _named(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for each in node.names:
            yield (each.asname or each.name).partition(".")[0]
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id


def _names(node: ast.stmt) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _plain(node: ast.AST) -> str:
    """Its text, without comments and docstrings."""
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(each):
            each.body = each.body[1:] or [ast.Pass()]
    return ast.unparse(node)


def _without_comments(text: str) -> str:
    lines = [line.rstrip() for line in _COMMENT.sub("", text).split("\n")]
    return "\n".join(line for line in lines if line)


def _code_lines(text: str, is_python: bool) -> list[str]:
    """The lines of code, which an edit can quote: without comments and docstrings."""
    if not is_python:
        return _without_comments(text).split("\n")
    return _plain(ast.parse(text)).split("\n")


def _changes(ours: list[str], theirs: list[str]) -> Iterator[str]:
    """`old => new` for each place where lines differ."""
    matcher = difflib.SequenceMatcher(
        None,
        [line.strip() for line in ours],
        [line.strip() for line in theirs],
        autojunk=False,
    )
    for kind, start, end, begin, stop in matcher.get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert":  # quote the line before, or the one after
            start, begin = (start - 1, begin - 1) if start else (start, begin)
            end, stop = (end, stop) if start < end else (end + 1, stop + 1)
        old = " ".join(line.strip() for line in ours[start:end])
        new = textwrap.dedent("\n".join(theirs[begin:stop])).split("\n")
        if len(new) == 1:
            yield f"{old} => {new[0]}".rstrip()
        else:
            yield f"{old} =>\n" + textwrap.indent("\n".join(new), "    ")


def _makes(entry: str, ours: str, text: str, is_python: bool) -> bool:
    """Whether the edits make this text of our answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draft.mistakes"
        words = f"## draft\nA message.\n{entry}\n"
        # a text in C++ may hold half a character
        file.write_bytes(words.encode("utf-8", "backslashreplace"))
        try:
            (section,) = edits.sections(file, is_python)
            made = [made for form in section.forms for made in form.texts(ours, [ours])]
        except MistakesError:
            return False
    return any(_same(each, text, is_python) for each in made)


def _same(one: str, other: str, is_python: bool) -> bool:
    if is_python:
        return _plain(ast.parse(one)) == _plain(ast.parse(other))
    return _without_comments(one).split() == _without_comments(other).split()
