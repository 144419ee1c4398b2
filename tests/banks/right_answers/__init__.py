"""Right answers to each exercise in other words than ours, and mistakes in other spellings.

An exercise's `.answers` has the stem of its own files, and is written as `.mistakes` are
(lessons_content/mistakes/edits.py), without messages and `maybe`:

    ## shared
        import math               what all answers of this file may use
    ## right (by a left search)
        return …                  a whole text. In Python the line `def answer(…):` is ours,
                                  unless the text has one.
    ## slug-of-the-mistake: old => new
        or old => new             another answer with the same mistake
    ## slug-of-another
        return …

An edit changes the last whole text above it; our answer, if there is none.

Those who write answers have not read the exercise's `.mistakes`. So they show whether a check
names what it has not seen.
"""

import __future__

import ast
import linecache
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from answers import every_exercise
from lessons_content.mistakes import edits
from lessons_lib.checks import Exercise, MistakesError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answer:
    slug: str  # "right", or a mistake's
    text: str
    place: str  # file and line

    def load(self, exercise: Exercise, shared: str = ""):
        """The text in C++ or CUDA; the function or class, as from a learner's cells."""
        if exercise.language != "python":
            return self.text
        scope = {"torch": torch, "__name__": "answer"}
        exec(shared, scope)
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.place] = (len(self.text), None, lines, self.place)
        flags = __future__.annotations.compiler_flag  # ours need imports
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # a mistake may be one of these
            exec(compile(self.text, self.place, "exec", flags, dont_inherit=True), scope)
        return scope[exercise.answer_name]


def answers_file(exercise: Exercise) -> Path:
    own = Path(exercise.mistakes.file)
    return HERE / own.parent.name / f"{own.stem}.answers"


def read(file: Path, exercise: Exercise) -> tuple[str, list[Answer]]:
    """What the answers share, and all of them."""
    is_python = exercise.language == "python"
    base = edits.our_answers()[exercise.id]
    shared, found = "", []
    for section in edits.sections(file, is_python, _head(base) if is_python else ""):
        title, _, first = section.slug.partition(": ")
        if first:  # the first line of its first form
            section = replace(section, lines=[(section.place, f"    {first}"), *section.lines])
        slug = title.partition(" ")[0]
        for form in section.forms:
            if slug == "shared":
                shared += form.whole
                continue
            text = form.whole or _edited(base, form)
            base = form.whole or base
            found.append(Answer(slug, text, form.place))
    return shared, found


def _head(answer: str) -> str:
    """`def answer(…):`, if ours is a function."""
    defined = ast.parse(answer).body[-1]
    if not isinstance(defined, ast.FunctionDef):
        return ""
    lines = answer.splitlines()
    return "\n".join(lines[defined.lineno - 1 : defined.body[0].lineno - 1])


def _edited(base: str, form: edits.Form) -> str:
    if form.returns:
        return form.texts_of(base)[0]
    for edit in form.edits:
        texts = edit.texts(base)
        if len(texts) != 1:
            raise MistakesError(
                f"{edit.place}: `{edit.old}` is {edit.count(base)} times in the text above, "
                "and has to be there once. Quote more of the line, or write =>> for all."
            )
        (base,) = texts
    return base


class Loaded(Sequence):
    """What `load` gives for each of some answers. None is loaded before it is needed."""

    def __init__(self, exercise: Exercise, shared: str):
        self.exercise, self.shared, self.answers = exercise, shared, []

    def __len__(self):
        return len(self.answers)

    def __getitem__(self, index):
        return self._loaded[index]

    @cached_property
    def _loaded(self) -> list:
        return [answer.load(self.exercise, self.shared) for answer in self.answers]


RIGHT_TEXTS: dict[str, list[str]] = {}  # by exercise
RIGHT_ANSWERS: dict[str, Loaded] = {}
WRONG_ANSWERS: dict[str, dict[str, Loaded]] = {}  # by exercise and slug
for _exercise in every_exercise():
    _file = answers_file(_exercise)
    _shared, _answers = read(_file, _exercise) if _file.exists() else ("", [])
    _by_slug = {"right": Loaded(_exercise, _shared)}
    for _answer in _answers:
        _by_slug.setdefault(_answer.slug, Loaded(_exercise, _shared)).answers.append(_answer)
    RIGHT_TEXTS[_exercise.id] = [each.text for each in _answers if each.slug == "right"]
    RIGHT_ANSWERS[_exercise.id] = _by_slug.pop("right")
    WRONG_ANSWERS[_exercise.id] = _by_slug
