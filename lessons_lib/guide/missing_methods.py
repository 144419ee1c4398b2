"""Says which cells to run when an object lacks a method that a cell adds to its class.

Some lessons write a class in one cell and its methods in later ones, which end with lines
such as `Pool.grow = grow`. When the class's cell runs again, the class has none of them.
"""

import ast
import difflib
from collections.abc import Mapping
from typing import Any

from lessons_lib.display import Card
from lessons_lib.guide import restart

_LIKE = 0.75  # how similar a name has to be to the missing one, up to 1


def explain(
    error: AttributeError, running: str, lesson: str | None, known: Mapping[str, Any]
) -> Card | None:
    """Says what to run or to write if an object has no such attribute; None if nothing helps.

    running: the text of the cell that raised the error.
    lesson: its number, if it is known.
    known: the kernel's variables, by name.
    """
    owner = error.obj if isinstance(error.obj, type) else type(error.obj)
    name = error.name or ""
    cells = restart.cells_above(running, lesson) if lesson else ()
    added = {cell: _adds(cell.source, owner.__name__) for cell in cells}
    if not any(name in names for names in added.values()):
        return _misspelt(name, error.obj)
    if known.get(owner.__name__, owner) is not owner:
        return _of_an_older_class(owner.__name__)
    missing = [
        cell
        for cell, names in added.items()
        if any(not hasattr(owner, each) for each in names)
    ]
    lines = [
        *restart.to_run(missing),
        f"A line at the end adds it to the class: `{owner.__name__}.{name} = {name}`. Is it "
        "still in your cell?",
        restart.IN_THE_MENU,
    ]
    return Card(
        f"`{name}` comes from a cell that has not run, or not since the cell of "
        f"`class {owner.__name__}` has run again",
        "\n".join(lines),
    )


def _adds(source: str, owner: str) -> frozenset[str]:
    """The names that a cell adds to a class: {"grow"} for `Pool.grow = grow`."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return frozenset()
    targets = [
        target
        for statement in statements
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    ]
    return frozenset(target.attr for target in targets if target.value.id == owner)  # type: ignore


def _of_an_older_class(owner: str) -> Card:
    return Card(
        f"This object is older than `class {owner}`, whose cell has run again since",
        "It has what the class had then. Make the object anew: run the cells between that of "
        f"the class and this one once more, in their order.\n{restart.IN_THE_MENU}",
    )


def _misspelt(name: str, thing: object) -> Card | None:
    names = [each for each in dir(thing) if not each.startswith("_")]
    like = difflib.get_close_matches(name, names, cutoff=_LIKE)
    return Card(f"There is no `{name}`. Do you mean `{like[0]}`?") if like else None
