"""The rooms of the course, and the only place where one names a room above it.

An arrow goes one way: lessons_lib <- paged_attention <- lessons_content <- lessons_grading.
Where a room needs something of one above, such as a check its exercises, it asks here, and
what it asks for is imported then.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# From below to above.
PACKAGES = ("lessons_lib", "paged_attention", "lessons_content", "lessons_grading")
JUDGING = (*PACKAGES, "kernels")  # their files decide about an answer
HANDED_OUT = (*JUDGING, "notebooks")  # what a wheel holds
EARLIER_NAMES = Path(__file__).with_name("earlier_names.toml")

_CONTENT = Path(__file__).parents[1] / "lessons_content"
_ABOVE = {
    "chat": "paged_attention.engine.speaking",
    "exercises": "lessons_content.exercises.all_exercises",
    "grader": "lessons_grading.command",
    "our answers": "lessons_content.mistakes.edits",
    "pool on the chat page": "lessons_content.lesson_08.pictures.served_pool",
    "server": "paged_attention.engine.serve.__main__",
}
# What nearly every answer needs; the process that all trials are forks of imports it once.
PRELOADED = ("torch", "lessons_lib.checks", _ABOVE["exercises"], "paged_attention.ladder")


def load(part: str) -> ModuleType:
    """The module of a room above that has this part: "chat", "grader", …"""
    return importlib.import_module(_ABOVE[part])


def lessons() -> tuple[str, ...]:
    """The numbers of the lessons that have exercises: "00", "01", …"""
    folders = sorted(_CONTENT.glob("lesson_[0-9][0-9]"))
    return tuple(folder.name.removeprefix("lesson_") for folder in folders)


def exercises(lesson: str, number: str = "*") -> list[ModuleType]:
    """The modules of a lesson's exercises, or of one, in their order.

    lesson: "3" or "03". number: "2" for exercise 3.2.
    """
    folder = _CONTENT / f"lesson_{int(lesson):02d}"
    names = [path.stem for path in folder.glob(f"e{int(lesson)}_{number}_*.py")]
    names.sort(key=lambda name: int(name.split("_")[1]))
    return [importlib.import_module(f"lessons_content.{folder.name}.{name}") for name in names]


def pictures(lesson: str) -> ModuleType:
    """The module of a lesson's pictures. lesson: "03" or "summary"."""
    return importlib.import_module(f"lessons_content.lesson_{lesson}.pictures")


def shown_content() -> list[str]:
    """The folders of lessons_content without exercises: pictures, and runs with what made
    them.
    """
    found = [
        _CONTENT / "bench",
        *_CONTENT.glob("lesson_*/pictures"),
        *_CONTENT.glob("*/bench"),
    ]
    return sorted(str(folder.relative_to(_CONTENT.parent)) for folder in found)


def map_earlier_names() -> None:
    """From now on, imports find modules by the names that they had before version 2.0.0 too.

    Saved answers, notebooks and commands of those versions use them.
    """
    if not any(isinstance(finder, _EarlierNames) for finder in sys.meta_path):
        sys.meta_path.append(_EarlierNames())  # at the end: asked where nothing else is found


def name_of_today(name: str) -> str | None:
    """The name of a module that had `name` in an earlier version, or None."""
    parts = name.split(".")
    known = _renamed()
    for count in range(len(parts), 0, -1):
        if new := known.get(".".join(parts[:count])):
            return ".".join([new, *parts[count:]])
    return None


def _renamed() -> dict[str, str]:
    import tomllib  # rarely needed, and this module is imported at each start of Python

    renamed = {}
    tables = tomllib.loads(EARLIER_NAMES.read_text(encoding="utf-8"))
    for package, earlier in tables.items():
        for before, names in earlier.items():
            for name in names.split():
                old, _, new = name.partition(">")
                if name == ".":
                    renamed[before] = package
                else:
                    renamed[f"{before}.{old}"] = f"{package}.{new or old}"
    return renamed


class _EarlierNames:
    """Finds a module by its earlier name, and gives today's module itself."""

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        is_ours = name.startswith(("lessons_", "paged_attention."))
        new = name_of_today(name) if is_ours else None
        try:
            found = importlib.util.find_spec(new) if new and new != name else None
        except ModuleNotFoundError:
            return None
        if new is None or found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(
            name, _Loader(new, found), origin=found.origin, is_package=is_package
        )


class _Loader:
    def __init__(self, name: str, spec: ModuleSpec):
        self.name, self.spec = name, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own  # the import system has written the earlier name there

    def get_code(self, name: str):
        """For `python -m` and the earlier name."""
        return self.spec.loader.get_code(self.name)  # type: ignore[union-attr]
