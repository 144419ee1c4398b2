"""Which package may import which, and that no two modules need each other: read from the
sources, imports in functions too.
"""

import ast
import re
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from lessons_lib import rooms
from lessons_lib.guide import handed_out
from lessons_lib.paths import ROOT

# A room and those that it may import. What a lesson imports is the lesson's business, so its
# own file is not listed.
ARROWS = {
    "lessons_lib": set(),
    "paged_attention": {"lessons_lib"},
    "lessons_content": {"lessons_lib", "paged_attention"},
    "lessons_grading": {"lessons_lib", "paged_attention", "lessons_content"},
    "tools": {"lessons_lib", "paged_attention", "lessons_content", "lessons_grading"},
}
ROOMS = "lessons_lib.rooms"  # the one module that names a room above it


def modules(folder: Path = ROOT) -> dict[str, Path]:
    """Dotted name to file, for each module of the packages but the lessons' own sources, which
    are no modules.
    """
    files = [
        path
        for package in ARROWS
        for path in (folder / package).rglob("*.py")
        if not path.stem[0].isdigit()
    ]
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in files]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, files)}


def imported(name: str, path: Path, known: Container[str]) -> Iterator[str]:
    """What a module imports anywhere in it.

    For `from a.b import c` this is `a.b.c` if that is a module, else `a.b`.
    """
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                if node.level
                else ""
            )
            base = ".".join(part for part in (above, node.module) if part)
            names = (f"{base}.{alias.name}" for alias in node.names)
            yield from (each if each in known else base for each in names)


def graph(folder: Path = ROOT) -> dict[str, set[str]]:
    """Each of our modules, with our modules that it imports."""
    known = modules(folder)
    return {
        name: {other for other in imported(name, path, known) if other in known}
        for name, path in known.items()
    }


def forbidden(needs: dict[str, set[str]]) -> list[str]:
    def package(name):
        return name.partition(".")[0]

    return [
        f"{name} imports {other}"
        for name, others in needs.items()
        for other in sorted(others)
        if package(other) not in ARROWS[package(name)] | {package(name)}
    ]


def circle(needs: dict[str, set[str]]) -> list[str]:
    """Modules that need each other in turn. That each module needs its package's __init__
    first is left out.
    """
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_imports_run_one_way():
    needs = graph()
    assert forbidden(needs) == []
    assert "lessons_lib.processes.isolation" in needs["lessons_lib.checks.running"]
    wrong = {"lessons_lib.new": {"paged_attention.pool.slots"}}
    assert forbidden(wrong) == ["lessons_lib.new imports paged_attention.pool.slots"]


def test_no_two_modules_need_each_other():
    assert circle(graph()) == []


def test_only_one_module_names_a_room_above_it():
    found = set()
    for name, path in modules().items():
        package = name.partition(".")[0]
        above = tuple(
            f"{other}." for other in ARROWS if other not in ARROWS[package] | {package}
        )
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.startswith(above)
                and " " not in node.value
                and "/" not in node.value
            ):
                found.add(name)
    assert found == {ROOMS}


def test_the_picture_of_the_rooms_is_true():
    """The one in CONTRIBUTING.md: who uses whom, and each folder in the list below it."""
    _, _, text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Nine rooms")
    text, _, _ = text.partition("\n## ")
    (chain,) = re.findall(r"^lessons_grading .*$", text, re.MULTILINE)
    drawn = [name.strip() for name in chain.split("──►")]
    assert drawn == [*reversed(rooms.PACKAGES)]
    for turn, name in enumerate(drawn):  # an arrow leads to each that is used
        assert ARROWS[name] == set(drawn[turn + 1 :])
    listed = re.findall(r"^- \*\*`(\w+)/`\*\*", text, re.MULTILINE)
    files = handed_out.git(ROOT, "ls-files") or b""  # nothing where git knows no clone
    rooms_of = {name.partition("/")[0] for name in files.decode().split("\n") if "/" in name}
    own = {name for name in rooms_of if not name.startswith(".")}
    assert len(listed) == 9 and own in (set(), set(listed))
