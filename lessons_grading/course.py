"""The course as a sandbox sees it.

The cells of a notebook see the whole course. Where an answer is tried, answers are missing.
Nothing of `solutions/` is in a sandbox, and of `lessons_content/` only the pictures and what
was measured. An exercise comes in as a package that has just what trying an answer needs.
"""

import functools
import io
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle

import lessons_content
from lessons_grading.confinement import WEIGHTS
from lessons_lib import checks
from lessons_lib.checks import Exercise, Mistake, result_codec
from lessons_lib.paths import ROOT
from lessons_lib.processes import pickles
from lessons_lib.source.lesson import Cell, parse_regions

WITH_ANSWERS = ("kernels", "paged_attention")
CHECKS = "lessons_content"
# Functions that the methods of lesson 08's scheduler call.
CALLED = {"8.3": ("8.5",), "8.4": ("8.5",)}
# Texts without stubs that also answer an exercise, and the first exercise that may see them.
LATER = {
    "kernels/slow_free_list.h": "1.2",
    "lessons_content/lesson_01/free_list.h": "1.2",
    "kernels/bug_hunt.cu": "6.8",
    "kernels/ladder/": "7.1",
    "paged_attention/engine/": "8.1",
}
_STUB = re.compile(r'"(Exercise [\d.]+).*"')
_NOT_HERE = "which is not there when answers are graded"
_TEXTS = (".py", ".cu", ".cuh", ".h", ".cpp")


def whole() -> dict[str, str]:
    """The text of each file in WITH_ANSWERS, by its path in the course."""
    return dict(_texts(*WITH_ANSWERS))


def without_answers(exercise: Exercise) -> dict[str, str]:
    """The same files where `exercise` is answered, with stubs for it and all later exercises.

    Those that the notebook's check has are no stubs: see `called_by`.
    For an exercise in C++ or CUDA, earlier Python solutions become stubs too, because nothing
    needs them. The texts that the exercise's check compiles are included.
    """
    lesson = f"{CHECKS}/lesson_{int(exercise.id.split('.')[0]):02d}"
    texts = [
        *_texts(*WITH_ANSWERS),
        *((path, text) for path, text in _texts(lesson) if not path.endswith(".py")),
    ]
    own = _number(exercise.id)
    return {
        path: _with_stubs(path, text, exercise)
        for path, text in texts
        if not any(
            path.startswith(name) and own < _number(first) for name, first in LATER.items()
        )
    }


def called_by(exercise: Exercise) -> frozenset[str]:
    """The exercises whose answers are there when this one's is tried, even later ones.

    A method is tried on one of our objects, in a notebook and here. It may call every other
    method of that object, in whatever order a learner writes them.
    """
    own = _class_of(exercise)
    others = (each for lesson in checks.lessons() for each in checks.exercises_of(lesson))
    methods = [each.id for each in others if own and _class_of(each) == own]
    return frozenset({*CALLED.get(exercise.id, ()), *methods} - {exercise.id})


def _class_of(exercise: Exercise) -> tuple[str, str] | None:
    """The module and the name of the class that the answer is a method of."""
    name = getattr(exercise.reference, "__qualname__", "")
    owner = "" if "<locals>" in name else name.rpartition(".")[0]
    return (exercise.reference.__module__, owner) if owner else None


def pack(exercise: Exercise, cases: tuple) -> bytes:
    """(exercise, cases) for `pickle.loads` in a sandbox.

    The exercise comes without our answer and without the models of mistakes. It brings along
    what it uses of `lessons_content`, which is not in the sandbox.
    """
    kind = type if isinstance(exercise.reference, type) else None
    mistakes = tuple(
        Mistake(mistake.slug, mistake.message, None) for mistake in exercise.mistakes
    )
    judging = ("hidden", "size", "describe", "same", "show", "chancy", "name_from_text")
    gone: dict[str, Any] = dict.fromkeys((*judging, "arrange"), result_codec.gone)
    bare = replace(
        exercise,
        reference=kind,
        mistakes=mistakes,
        hints=(),
        cases=tuple,
        **gone,
    )
    # found by `is` and not by `==`, because the class of an answer may compare in any way
    forms = [
        exercise.reference,
        *(form for mistake in exercise.mistakes for form in (mistake.wrong, *mistake.also)),
    ]
    sent = (bare, tuple(map(exercise.arrange, cases)))
    names: frozenset[str] = frozenset()
    while True:  # each round reaches what the names of the last round led to
        file = io.BytesIO()
        pickler = _Pickler(file, names, forms)
        pickler.dump(sent)
        if pickler.found == names:
            return file.getvalue()
        names = frozenset(pickler.found)


class _Pickler(pickles.Pickler):
    """Pickles by value what `lessons_content` defines, without `forms`.

    Of its modules it takes only the `names`, and of caches the function.
    found: the names that the pickled code uses.
    """

    def __init__(self, file, names: frozenset[str], forms: list):
        super().__init__(file)
        self.names = names
        self.found: set[str] = set()
        self.forms = {id(form) for form in forms if form is not None}

    def dump(self, value):
        cloudpickle.register_pickle_by_value(lessons_content)
        try:
            super().dump(value)
        finally:
            cloudpickle.unregister_pickle_by_value(lessons_content)

    def reducer_override(self, value):
        if id(value) in self.forms:  # something names it, as `if answer is reference` does
            return getattr, (result_codec, "gone")
        if isinstance(value, types.CodeType):
            self.found.update(value.co_names)
        if isinstance(value, types.ModuleType) and value.__name__.startswith(
            "lessons_content."
        ):
            return (
                types.ModuleType,
                (value.__name__,),
                {name: part for name, part in vars(value).items() if name in self.names},
            )
        is_cache = hasattr(value, "cache_info") and hasattr(value, "__wrapped__")
        if is_cache and value.__module__.startswith("lessons_content."):
            return functools.cache, (value.__wrapped__,)
        return super().reducer_override(value)


def _texts(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in _TEXTS and not name.startswith(WEIGHTS):
                yield name, path.read_text(encoding="utf-8")


def _with_stubs(path: str, text: str, exercise: Exercise) -> str:
    own, called = _number(exercise.id), called_by(exercise)

    def is_hidden(region) -> bool:
        if region.exercise in (None, "?", *called):
            return region.exercise == "?"
        number = _number(region.exercise)
        return (
            number >= own
            or number[0] < own[0]
            and path.endswith(".py")
            and exercise.language != "python"
        )

    if "BEGIN SOLUTION" not in text:
        return text
    lines = []
    for region in parse_regions(text.split("\n"), None, where=path):
        if is_hidden(region):
            language = "cuda" if Path(path).suffix in (".cu", ".cuh") else "c++"
            stub = Cell("exercise", "", region.exercise, language).stub_of(region)
            lines.append(_STUB.sub(rf'"\1{checks.OF_THE_COURSE}, {_NOT_HERE}"', stub))
        else:
            lines += region.lines
    return "\n".join(lines)


def _number(exercise: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", exercise)))
