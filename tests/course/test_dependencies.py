"""What the code imports is what pyproject.toml says it needs, and nothing more."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib import metadata

import pytest

from lessons_lib.paths import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
NEEDED = PYPROJECT["project"]["dependencies"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"] | {
    "build": PYPROJECT["build-system"]["requires"]  # of the wheel
}
# What a room may import besides what everybody has.
EXTRAS_OF = {
    "lessons_grading": {"cluster", "grade"},
    "tools": {"build", "fuzz", "mutants", "site", "test"},
    "solutions": set(),
    "tests": {*EXTRAS},
}
# They are measured beside ours where somebody has installed them, and no lesson needs them.
MEASURED = {"flash-attn", "flashinfer", "minisgl", "nanovllm", "vllm"}
MEASURED |= {"pydantic-core", "uvloop"}  # of vLLM's process
COMMANDS = {"jupyterlab", "ninja"}  # are started, and not imported


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[ <>=!~;\[]", requirement)[0]).lower()


@cache
def distributions() -> dict[str, list[str]]:
    return {name: [*found] for name, found in metadata.packages_distributions().items()}


@cache
def imported(room: str) -> dict[str, str]:
    """The distributions that a room's modules import, each with a file that does."""
    ours = {path.name for path in ROOT.iterdir()} | {
        path.stem for path in (ROOT / "tests").rglob("*")
    }
    found = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            else:
                continue
            for module in {name.partition(".")[0] for name in modules}:
                if module not in sys.stdlib_module_names | ours:
                    # two distributions can bring one module; the first is as good
                    found[name_of(distributions().get(module, [module])[0])] = str(path)
    return found


@pytest.mark.parametrize("room", [*WHEEL, "tools", "solutions", "tests"])
def test_what_a_room_imports_is_declared(room):
    extras = EXTRAS_OF.get(room, set())
    declared = {name_of(text) for text in sum((EXTRAS[name] for name in extras), NEEDED)}
    undeclared = {
        name: path for name, path in imported(room).items() if name not in declared | MEASURED
    }
    assert not undeclared


def test_what_is_declared_for_everybody_is_imported_by_the_wheel():
    used = {name for room in WHEEL for name in imported(room)}
    assert {name_of(text) for text in NEEDED} <= used | COMMANDS
