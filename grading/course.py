"""The course as a sandbox holds it: whole for the cells of a notebook, and without what it asks for where an answer is tried.

Nothing of `solutions/` is in a sandbox: an exercise comes in as a package of what is needed to try an answer, and no more.
"""

import functools
import io
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cloudpickle

import solutions
from grading import results
from grading.confinement import WEIGHTS
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.paths import ROOT
from solutions.source import Cell, parse_regions

WITH_ANSWERS = ("kernels", "paged_attention")
CHECKS = "solutions/checks"
# Lesson 08 tries a method of the scheduler or of the engine with the others that it calls.
CALLED = {"8.3": ("8.4", "8.5", "8.6"), "8.4": ("8.5", "8.6")}
# Texts without stubs that answer an exercise too, and the first exercise that may see them.
LATER = {"kernels/slow_free_list.h": "1.2", "solutions/checks/lesson_01/free_list.h": "1.2", "kernels/bug_hunt.cu": "6.8",
         "kernels/ladder/": "7.1", "paged_attention/engine/": "8.1"}
_TEXTS = (".py", ".cu", ".cuh", ".h", ".cpp")


def whole() -> dict[str, str]:
    """The text of each file in WITH_ANSWERS, by its path in the course."""
    return dict(_texts(*WITH_ANSWERS))


def without_answers(exercise: Exercise) -> dict[str, str]:
    """The same for those who answer `exercise`: stubs in place of its solution and of those of all later exercises. C++ and
    CUDA are answered without Python: there no solution in Python of an earlier lesson is left either. With the texts that its
    check compiles."""
    lesson = f"{CHECKS}/lesson_{int(exercise.id.split('.')[0]):02d}"
    texts = [*_texts(*WITH_ANSWERS), *((path, text) for path, text in _texts(lesson) if not path.endswith(".py"))]
    own = _number(exercise.id)
    return {path: _with_stubs(path, text, exercise) for path, text in texts
            if not any(path.startswith(name) and own < _number(first) for name, first in LATER.items())}


def pack(exercise: Exercise, cases: tuple) -> bytes:
    """(exercise, cases) for `pickle.loads` in a sandbox: the exercise without our answer and the mistakes' models. What it
    uses of `solutions/`, which is not there, is in it."""
    kind = type if isinstance(exercise.reference, type) else None
    mistakes = tuple(Mistake(mistake.slug, mistake.message, None) for mistake in exercise.mistakes)
    bare = replace(exercise, reference=kind, mistakes=mistakes, hints=(), cases=tuple, size=len, hidden=len, describe=repr,
                   same=bool, show=repr, chancy=bool, name_from_text=len, arrange=repr)
    # `is` and not `==`: nobody knows how the class of an answer compares.
    forms = [exercise.reference, *(form for mistake in exercise.mistakes for form in (mistake.wrong, *mistake.also))]
    sent, known, names = (bare, tuple(map(exercise.arrange, cases))), None, frozenset()
    while known != names:  # each time it reaches what the names of the last time led to
        known, file = names, io.BytesIO()
        pickler = _Pickler(file, names, forms)
        pickler.dump(sent)
        names = frozenset(pickler.found)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """By value what `solutions` defines, without `forms`: of its modules only what has one of `names`, of caches the function.

    `found`: the names that the code in it uses.
    """

    def __init__(self, file, names: frozenset[str], forms: list):
        super().__init__(file)
        self.names, self.found, self.forms = names, set(), {id(form) for form in forms if form is not None}

    def dump(self, value):
        cloudpickle.register_pickle_by_value(solutions)
        try:
            super().dump(value)
        finally:
            cloudpickle.unregister_pickle_by_value(solutions)

    def reducer_override(self, value):
        if id(value) in self.forms:  # something names it, as in `if answer is reference`
            return getattr, (results, "gone")
        if isinstance(value, types.CodeType):
            self.found.update(value.co_names)
        if isinstance(value, types.ModuleType) and value.__name__.startswith("solutions."):
            return types.ModuleType, (value.__name__,), {name: part for name, part in vars(value).items() if name in self.names}
        if isinstance(value, functools._lru_cache_wrapper) and value.__module__.startswith("solutions."):
            return functools.cache, (value.__wrapped__,)
        return super().reducer_override(value)


def _texts(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in _TEXTS and not name.startswith(WEIGHTS):
                yield name, path.read_text(encoding="utf-8")


def _with_stubs(path: str, text: str, exercise: Exercise) -> str:
    own = _number(exercise.id)

    def is_hidden(region) -> bool:
        if region.exercise in (None, "?", *CALLED.get(exercise.id, ())):
            return region.exercise == "?"
        number = _number(region.exercise)
        return number >= own or number[0] < own[0] and path.endswith(".py") and exercise.language != "python"

    if "BEGIN SOLUTION" not in text:
        return text
    lines = []
    for region in parse_regions(text.split("\n"), None, where=path):
        if is_hidden(region):
            language = "cuda" if Path(path).suffix in (".cu", ".cuh") else "c++"
            lines.append(Cell("exercise", "", region.exercise, language)._stub(region))
        else:
            lines += region.lines
    return "\n".join(lines)


def _number(exercise: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", exercise)))
