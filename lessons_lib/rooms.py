"""The rooms of the course. This is the only module that names modules of a room above it.

An arrow goes one way: lessons_lib <- paged_attention <- lessons_content <- lessons_grading.
Sometimes a room needs a module of a room above, as a check needs the exercises. Then it asks
here, and the module is imported at that moment.

Each Python process in the course's environment imports this module as it starts
(start/course.pth), so that modules are found by their earlier names too. So this module
imports nothing that takes time.
"""

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

# From below to above.
PACKAGES = ("lessons_lib", "paged_attention", "lessons_content", "lessons_grading")
JUDGING = (*PACKAGES, "kernels")  # the files of these rooms decide about an answer
HANDED_OUT = (*JUDGING, "notebooks")  # the rooms that a wheel holds
WITH_ANSWERS = ("kernels", "lessons_content", "paged_attention")
# A result from another process may have objects of these modules' classes.
RESULT_CLASSES = ("lessons_lib.checks.types", "lessons_content.")
BENCH = ("python", "-m", "tools.bench")  # the command of a benchmark, before its name
# Rooms that were there before version 2.0.0. earlier_names.toml says where their modules are.
GONE = (
    *("lessons_bench", "lessons_command", "lessons_draw", "lessons_exercises"),
    *("lessons_guide", "lessons_processes"),
)

_HERE = os.path.dirname(os.path.abspath(__file__))
_ABOVE = {
    "chat": "paged_attention.engine.speaking",
    "exercises": "lessons_content.exercises.all_exercises",
    "grader": "lessons_grading.command",
    "our answers": "lessons_content.mistakes.edits",
    "pool on the chat page": "lessons_content.lesson_08.pictures.served_pool",
    "server": "paged_attention.engine.serve.__main__",
}
# Modules that nearly every answer needs. The forkserver imports them once for all runs.
PRELOADED = ("torch", "lessons_lib.checks", _ABOVE["exercises"], "paged_attention.ladder")


def load(part: str) -> ModuleType:
    """The module of a room above that has this part: "chat", "grader", …"""
    return importlib.import_module(_ABOVE[part])


def lessons() -> tuple[str, ...]:
    """The numbers of the lessons that have exercises: "00", "01", …"""
    folders = _content().glob("lesson_[0-9][0-9]")
    return tuple(sorted(folder.name.removeprefix("lesson_") for folder in folders))


def exercises(lesson: str, number: str = "*") -> list[ModuleType]:
    """The modules of a lesson's exercises, in order.

    lesson: "3" or "03".
    number: "2" for exercise 3.2 alone; "*" takes all.
    """
    folder = _content() / f"lesson_{int(lesson):02d}"
    names = [path.stem for path in folder.glob(f"e{int(lesson)}_{number}_*.py")]
    names.sort(key=lambda name: int(name.split("_")[1]))
    return [importlib.import_module(f"lessons_content.{folder.name}.{name}") for name in names]


def pictures(lesson: str) -> ModuleType:
    """The module of a lesson's pictures. lesson: "03" or "summary"."""
    return importlib.import_module(f"lessons_content.lesson_{lesson}.pictures")


def shown_content() -> list[str]:
    """The folders of lessons_content that have no exercises: pictures and benchmarks."""
    content = _content()
    folders = [content / "bench_records"]
    for name in ("pictures", "bench"):
        folders += content.glob(f"lesson_*/{name}")
    return sorted(str(folder.relative_to(content.parent)) for folder in folders)


def _content():
    from pathlib import Path

    return Path(_HERE).parent / "lessons_content"


def map_earlier_names() -> None:
    """Makes imports find modules by the names that they had before version 2.0.0, too.

    Saved answers, notebooks and commands of those versions use these names.
    """
    # Rooms that are gone come first, before an import looks for them in today's folders.
    # Modules that moved within today's rooms come last, when nothing else is found.
    sys.meta_path.insert(0, _EarlierNames(gone=True))
    sys.meta_path.append(_EarlierNames(gone=False))


def name_of_today(name: str) -> str | None:
    """The name of a module that had `name` in an earlier version, or None."""
    parts = name.split(".")
    known = _renamed()
    for count in range(len(parts), 0, -1):
        if new := known.get(".".join(parts[:count])):
            return ".".join([new, *parts[count:]])
    return None


def _renamed() -> dict[str, str]:
    import tomllib

    with open(os.path.join(_HERE, "earlier_names.toml"), "rb") as file:
        tables = tomllib.load(file)
    renamed = {}
    for package, earlier in tables.items():
        for before, names in earlier.items():
            for name in names.split():
                old, _, new = name.partition(">")
                is_all = name == "."
                renamed[before if is_all else f"{before}.{old}"] = (
                    package if is_all else f"{package}.{new or old}"
                )
    # `from lessons_bench import ladder` looks in the package that replaces lessons_bench
    for name, today in [*renamed.items()]:
        before, _, own = name.rpartition(".")
        if own and before in renamed:
            renamed.setdefault(f"{renamed[before]}.{own}", today)
    return renamed


class _EarlierNames:
    """Finds a module by its earlier name, and gives today's module itself.

    gone: True finds modules of rooms that are gone, False modules that moved within today's
        rooms.
    """

    def __init__(self, gone: bool):
        self.gone = gone

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        room = name.partition(".")[0]
        if self.gone != (room in GONE) or not self.gone and room not in (*PACKAGES, "tools"):
            return None
        new = name_of_today(name)
        if new is None or new == name:
            return None
        from importlib.util import find_spec

        try:
            found = find_spec(new)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        spec = ModuleSpec(name, _Loader(new, found), origin=found.origin)  # type: ignore[arg-type]
        if found.submodule_search_locations is not None:
            spec.submodule_search_locations = []  # this finder also finds the submodules
        return spec


class _Loader:
    def __init__(self, name: str, spec: ModuleSpec):
        self.name, self.spec = name, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        self.own = module.__spec__, module.__dict__.get("__path__")
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has given the module the earlier name's spec. Today's spec goes
        # back.
        module.__spec__, folders = self.own
        if folders is not None:
            module.__path__ = folders

    def get_code(self, name: str):
        """The module's code. `python -m` with an earlier name asks for it."""
        return self.spec.loader.get_code(self.name)  # type: ignore[union-attr]
