"""Answers to hand in: our solutions, each known mistake, and right answers written
differently.
"""

import ast
import functools
from pathlib import Path

from lessons_content.mistakes import edits
from lessons_lib import checks
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.paths import SOLUTIONS
from lessons_lib.source.lesson import Cell
from tools.notebooks.lesson_files import read_lesson


@functools.cache
def every_exercise() -> list[Exercise]:
    return [
        exercise for lesson in checks.lessons() for exercise in checks.exercises_of(lesson)
    ]


def own_mistakes(exercise: Exercise) -> tuple[Mistake, ...]:
    """Without those that all exercises have in common."""
    return exercise.mistakes.own


def own_slugs(exercise: Exercise) -> list[str]:
    """Their names, without making their texts, which takes long."""
    file = Path(exercise.mistakes.file).with_suffix(".mistakes")
    sections = edits.sections(file, is_python=not is_built(exercise))
    return [section.slug for section in sections if section.slug not in edits.OF_OTHERS]


def own_mistake(exercise: Exercise, slug: str) -> Mistake:
    return next(mistake for mistake in own_mistakes(exercise) if mistake.slug == slug)


def forms_of(exercise: Exercise, respelt: bool = False) -> list[tuple[str, checks.Form]]:
    """(slug, form) for each form of the own mistakes: as it is written, or respelt."""
    return [
        (mistake.slug, form)
        for mistake in own_mistakes(exercise)
        for form in (mistake.wrong, *mistake.also)
        if form.is_respelt == respelt
    ]


def is_built(exercise: Exercise) -> bool:
    """Whether its mistakes are texts in C++ or CUDA, which take seconds to build."""
    return exercise.language != "python"


def attempt(exercise: Exercise, form, number: int, case):
    """What a form gives on a case, the one with this number in order; as recorded if it would
    have to be built.
    """
    if is_built(exercise) and isinstance(form, checks.Form):
        return form.record(number)[1]
    return checks.attempt(exercise, form, case)


def our_answer(exercise: Exercise):
    """What the solution notebook hands to `check`."""
    return _handed_in(exercise, Cell.solution)


def stub(exercise: Exercise):
    """What the student notebook hands to `check` as long as nothing is written."""
    return _handed_in(exercise, Cell.student)


def _handed_in(exercise: Exercise, text):
    """The exercise's cell, run after what the lesson defines before it."""
    namespace = {"__name__": "__main__"}
    for cell in _lesson(exercise).cells:
        if cell.kind == "exercise" and cell.exercise == exercise.id:
            exec(text(cell), namespace)  # our own source
            return namespace[exercise.answer_name]
        if cell.kind in ("code", "exercise"):
            exec(_definitions(cell.solution()), namespace)
    raise LookupError(exercise.id)


def _definitions(source: str):
    """A cell's imports, functions and classes, without what it does with them."""
    tree = ast.parse(source)
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    return compile(tree, "<lesson>", "exec")


def wrong_answer(exercise: Exercise, mistake: Mistake):
    """The mistake as a learner would hand it in."""
    return mistake.wrong.text if is_built(exercise) else mistake.wrong.load()


@functools.cache
def _read(path):
    return read_lesson(path)


def _lesson(exercise: Exercise):
    number = int(exercise.id.split(".")[0])
    (path,) = SOLUTIONS.glob(f"{number:02d}_*.py")
    return _read(path)
