"""Reads a submitted notebook, which may be anything: which lesson it is, and its code cells."""

import functools
import hashlib
import json
import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lessons_lib import checks
from lessons_lib.paths import SOLUTIONS

LARGEST_FILE = 20 << 20  # bytes; a lesson with all its pictures has less than one million


@dataclass(frozen=True)
class Cell:
    """A code cell. `number`: its place among all cells of the notebook, from 1."""

    number: int
    source: str


@dataclass(frozen=True)
class Notebook:
    """`digest`: SHA-256 of the file. `lesson`: "02", or None. `problem`: why it cannot be graded, or ""."""

    digest: str
    lesson: str | None
    cells: tuple[Cell, ...]
    problem: str = ""


class _Unreadable(Exception):
    """Why a file is no notebook, in plain words."""


def read_notebook(path: Path) -> Notebook:
    """The notebook at `path`. Never raises for what lies there."""
    digest, by_name = "", _lesson_of_name(path.name)
    try:
        data = _read_file(path)
        digest = hashlib.sha256(data).hexdigest()
        cells = _cells(data)
    except _Unreadable as problem:
        return Notebook(digest, by_name, (), str(problem))
    lesson = _most_named(map(_lessons_marked, cells)) or _most_named(map(_lessons_of_answers, cells)) or by_name
    code = tuple(Cell(number, _source(cell)) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code")
    return Notebook(digest, lesson, code, "" if lesson else "nothing in this notebook says which lesson it is")


def _read_file(path: Path) -> bytes:
    try:
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            raise _Unreadable("this is a link, and links are not followed")
        if not stat.S_ISREG(about.st_mode):
            raise _Unreadable("this is not a file")
        if about.st_size > LARGEST_FILE:
            raise _Unreadable(f"this file has {about.st_size >> 20} MB, and a notebook may have {LARGEST_FILE >> 20}")
        return path.read_bytes()
    except OSError as error:
        raise _Unreadable(f"this file cannot be read: {error.strerror}") from None


def _cells(data: bytes) -> list[dict]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON ({error})" if data.strip() else "it is empty"
        raise _Unreadable(f"this is not a notebook: {reason}") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise _Unreadable("this is not a notebook: it has no list of cells")
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _source(cell: dict) -> str:
    source = cell.get("source")
    return "".join(map(str, source)) if isinstance(source, list) else source if isinstance(source, str) else ""


def _most_named(lessons) -> str | None:
    known = Counter(lesson for found in lessons for lesson in found if lesson in _lessons())
    return known.most_common(1)[0][0] if known else None


def _lessons_marked(cell: dict) -> set[str]:
    """The lessons that a cell's metadata, its id, or a call of `check` in it name."""
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    grader = metadata.get("nbgrader")
    names = [cell.get("id"), grader.get("grade_id") if isinstance(grader, dict) else None]
    marks = [re.match(r"(?:exercise|check)-(\d+)-\d+", str(name)) for name in names]
    marks += [re.match(r"(\d+)\.\d+$", str(metadata.get(key))) for key in ("exercise", "check")]
    marks += re.finditer(r"""\bcheck\(\s*["'](\d+)\.\d+["']""", _source(cell))
    return {f"{int(mark[1]):02d}" for mark in marks if mark and len(mark[1]) < 3}


def _lessons_of_answers(cell: dict) -> set[str]:
    """The lessons of the answers that a cell defines."""
    names = re.findall(r"^(?:def |class )?(\w+)(?=\s*[(:=])", _source(cell), re.MULTILINE)
    return {_lessons_by_answer()[name] for name in names if name in _lessons_by_answer()}


def _lesson_of_name(file_name: str) -> str | None:
    return next((number for number in re.findall(r"(?<!\d)\d\d(?!\d)", file_name) if number in _lessons()), None)


@functools.cache
def _lessons() -> tuple[str, ...]:
    return tuple(path.name[:2] for path in sorted(SOLUTIONS.glob("[0-9][0-9]_*.py")))


@functools.cache
def _lessons_by_answer() -> dict[str, str]:
    return {exercise.answer_name: lesson for lesson in _lessons() for exercise in checks.exercises_of(lesson)}
