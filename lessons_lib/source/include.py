"""Copies a definition from a Python file, so that a lesson shows what later lessons import."""

import ast
import re
import textwrap
from collections.abc import Iterable

from lessons_lib.paths import ROOT


class SourceError(Exception):
    """A lesson's source has an error. The message names the file and the place."""


def python_definition(file: str, name: str, without: Iterable[str] = ()) -> list[str]:
    """The lines of a function, class, method ("Class.method") or constant, with its comments.

    file: its path in the project.
    without: names of methods to leave out of a class.
    Raises SourceError if the file or the name does not exist.
    """
    path = ROOT / file
    if not path.is_file():
        raise SourceError(f"there is no {file} to include")
    lines = path.read_text(encoding="utf-8").splitlines()
    body = ast.parse("\n".join(lines)).body
    for part in name.split("."):
        node = _find(body, part, where=f"{file} {name}")
        body = getattr(node, "body", [])
    first, last = _extent(node, lines)
    dropped = [
        _extent(_find(body, method, where=f"{file} {name}"), lines) for method in without
    ]
    kept = [
        line
        for number, line in enumerate(lines[first:last], first)
        if not any(start <= number < end for start, end in dropped)
    ]
    text = re.sub(r"\n{3,}", "\n\n", textwrap.dedent("\n".join(kept))).strip("\n")
    return text.split("\n")


def _find(body, name: str, where: str):
    for node in body:
        targets = [
            target.id
            for target in getattr(node, "targets", [])
            if isinstance(target, ast.Name)
        ]
        if name in (getattr(node, "name", None), *targets):
            return node
    raise SourceError(f"{where}: there is no {name}")


def _extent(node, lines: list[str]) -> tuple[int, int]:
    """(first, last) of the definition's lines, counted from 0; `last` is one past the end.

    It begins with the first decorator. It ends with its last line, or with a solution's end
    marker after that.
    """
    first = (
        min(
            [
                node.lineno,
                *(decorator.lineno for decorator in getattr(node, "decorator_list", [])),
            ]
        )
        - 1
    )
    last = node.end_lineno
    while (
        last < len(lines)
        and lines[last].strip().startswith("#")
        and len(lines[last]) - len(lines[last].lstrip()) > node.col_offset
    ):
        last += 1
    return first, last
