"""Which package may import which, and that no two modules need each other: read from the
sources, imports in functions too.
"""

import ast
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from lessons_lib.paths import ROOT

# A package and those that it may import. What a lesson imports is the lesson's business, so
# its own file is not listed.
ARROWS = {
    "lessons_lib.processes": set(),
    "lessons_lib": {"lessons_lib.processes"},
    "paged_attention": {"lessons_lib", "lessons_lib.processes"},
    "lessons_content": {
        "tools.notebooks",
        "lessons_lib",
        "lessons_lib.processes",
        "paged_attention",
    },
    "tools.notebooks": {"lessons_lib.guide", "lessons_lib"},
    "tools.bench": {"lessons_lib", "paged_attention", "lessons_lib.drawing"},
    # what was measured is drawn, and a message is as in a check
    "lessons_lib.drawing": {"paged_attention", "tools.bench", "lessons_lib"},
    # what a sandbox gets of an exercise is cut out of its text
    "lessons_grading": {
        "lessons_lib",
        "lessons_lib.processes",
        "tools.notebooks",
        "lessons_content",
    },
    "tools.site": {"tools.bench", "tools.notebooks", "lessons_lib.drawing", "lessons_lib"},
    # where a learner is in the course, and what it has handed out
    "lessons_lib.guide": {"lessons_lib"},
    "lessons_lib.start": {
        "lessons_grading",
        "lessons_lib.guide",
        "lessons_lib",
        "paged_attention",  # a chat on one's own engine
    },
}
# Modules that are looked up by name when the program runs, if they exist: (importer, module).
BY_NAME = {
    ("tools.notebooks.online", "tools.site.addresses"),  # the repository's address
    (
        "tools.notebooks.pictures",
        "lessons_lib.drawing.lesson_",
    ),  # those in the text of a lesson
    ("lessons_lib.checks", "lessons_content.lesson_"),  # the exercises of a lesson
    ("lessons_lib.notebook_api", "lessons_lib.drawing.lesson_"),  # the pictures of a lesson
    ("lessons_lib.guide.show_cells", "lessons_content.mistakes.edits"),  # our answers
    ("lessons_lib.machine", "lessons_content.mistakes.edits"),  # the same
    (
        "lessons_lib.notebook_api",
        "lessons_lib.guide.",
    ),  # the guides, which use the lessons' library
    # the chat page's view of the pool
    ("paged_attention.engine.serve.pool", "lessons_content.lesson_08.pictures.served_pool"),
    ("lessons_lib.checks.result_codec", "lessons_content."),  # the classes of results
    # imported ahead of the runs, to save time
    ("lessons_lib.processes.isolation", "lessons_content.exercises.all_exercises"),
    ("lessons_lib.processes.isolation", "lessons_lib.checks"),
    ("lessons_lib.processes.isolation", "paged_attention.ladder.decode"),
}


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
    """Each module to those of ours that it imports."""
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
    assert "lessons_lib.processes.isolation" in needs["lessons_lib.checks"]
    wrong = {"lessons_lib.new": {"paged_attention.pool.slots"}}
    assert forbidden(wrong) == ["lessons_lib.new imports paged_attention.pool.slots"]


def test_no_two_modules_need_each_other():
    assert circle(graph()) == []


def test_what_is_looked_up_by_name_is_listed():
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
                found.add((name, node.value))
    assert found == BY_NAME
