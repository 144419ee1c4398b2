"""Packs our answers in Python with the exercises, whose mistakes are edits of them."""

import ast
import json

from lessons_build.source import Cell, Lesson
from lessons_lib.paths import ROOT

FILE = ROOT / "lessons_exercises/our_answers.json"


def pack(lessons: list[Lesson]) -> str:
    """The text of FILE: {exercise: what its cell defines}, for exercises in Python."""
    answers = {
        cell.exercise: definitions
        for lesson in lessons
        for cell in lesson.cells
        if cell.kind == "exercise" and (definitions := _definitions(cell))
    }
    return json.dumps(answers, indent=1, ensure_ascii=False) + "\n"


def _definitions(cell: Cell) -> str:
    """The cell's functions and classes, without marks."""
    lines = [line for line in cell.solution().split("\n") if "SOLUTION" not in line]
    kept = [
        lines[node.lineno - 1 : node.end_lineno]
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return "\n\n\n".join("\n".join(part) for part in kept) + "\n" * bool(kept)
