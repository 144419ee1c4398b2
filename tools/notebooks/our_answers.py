"""Packs our answers for the exercises, because their mistakes are edits of our answers."""

import ast
import json

from lessons_lib.paths import ROOT
from lessons_lib.source.lesson import Cell, Lesson

FILE = ROOT / "lessons_content/mistakes/our_answers.json"


def pack(lessons: list[Lesson]) -> str:
    """The text of FILE: the definitions of each exercise's cell, by exercise."""
    answers = {
        cell.exercise: definitions
        for lesson in lessons
        for cell in lesson.cells
        if cell.kind == "exercise" and (definitions := _definitions(cell))
    }
    return json.dumps(answers, indent=1, ensure_ascii=False) + "\n"


def _definitions(cell: Cell) -> str:
    """The cell's functions and classes, or its text in C++ or CUDA, without marks."""
    # the solution of a faulty cell begins with the faulty text
    text = cell.source if cell.faulty else cell.solution()
    lines = [line for line in text.split("\n") if "SOLUTION" not in line]
    body = ast.parse("\n".join(lines)).body
    kept = [
        lines[node.lineno - 1 : node.end_lineno]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    if kept:
        return "\n\n\n".join("\n".join(part) for part in kept) + "\n"
    assigned = [node.value for node in body if isinstance(node, ast.Assign)]
    values = [value.value for value in assigned if isinstance(value, ast.Constant)]
    return next((value for value in values if isinstance(value, str)), "")
