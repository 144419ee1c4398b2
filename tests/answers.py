"""Answers to hand in: our solutions, each known mistake, and right answers written
differently.
"""

import ast
import functools

from cpp_edits import edited
from lessons_build.source import Cell, read_lesson
from lessons_exercises.mistakes import Bank
from lessons_lib import checks
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.paths import SOLUTIONS


def every_exercise() -> list[Exercise]:
    return [
        exercise for lesson in checks.lessons() for exercise in checks.exercises_of(lesson)
    ]


def own_mistakes(exercise: Exercise) -> tuple[Mistake, ...]:
    """Without those that all exercises have in common."""
    mistakes = exercise.mistakes
    return mistakes.own if isinstance(mistakes, Bank) else tuple(mistakes)


def forms_of(exercise: Exercise) -> list[tuple[str, object]]:
    """(slug, form) for each form of the own mistakes, as it is written: not respelt."""
    return [
        (mistake.slug, form)
        for mistake in own_mistakes(exercise)
        for form in (mistake.wrong, *mistake.also)
        if form is not None and not getattr(form, "is_respelt", False)
    ]


def loaded(form):
    return form.load() if isinstance(form, checks.Form) else form


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
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Try)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    return compile(tree, "<lesson>", "exec")


def wrong_answer(exercise: Exercise, mistake: Mistake):
    """The mistake as a learner would hand it in."""
    if exercise.language == "python":
        return loaded(mistake.wrong)
    return edited(_source_text(exercise), *mistake.edits)


def _source_text(exercise: Exercise) -> str:
    """Our C++ answer with the solution markers as the file under kernels/ has them, which the
    edits refer to.
    """
    namespace = {}
    exec(_exercise_cell(exercise).source, namespace)
    return namespace[exercise.answer_name]


def _exercise_cell(exercise: Exercise):
    return next(
        cell
        for cell in _lesson(exercise).cells
        if cell.kind == "exercise" and cell.exercise == exercise.id
    )


@functools.cache
def _read(path):
    return read_lesson(path)


def _lesson(exercise: Exercise):
    number = int(exercise.id.split(".")[0])
    (path,) = SOLUTIONS.glob(f"{number:02d}_*.py")
    return _read(path)
