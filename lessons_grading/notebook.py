"""Reads a submitted notebook: which lesson it is, and its code cells. It may be anything."""

import functools
import hashlib
import json
import os
import re
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lessons_grading.submissions import text_of
from lessons_lib import checks

LARGEST_FILE = 100 << 20  # bytes, with all outputs
# bytes, without outputs; a lesson with all its text has less than one million
LARGEST_CODE = 10 << 20
LARGEST_BESIDE, MOST_BESIDE = 1 << 20, 100  # bytes and number of the files beside a notebook
# Large parts that a grade does not need: outputs, pasted pictures, the state of widgets. In
# JSON a quote inside a string follows a backslash, so this finds only names.
_BULK = re.compile(rb'"(?:outputs|attachments|widgets)"[ \t\r\n]*:[ \t\r\n]*(?=[\[{])')
_MARK = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class Cell:
    """A code cell. `number` is its place among all cells of the notebook, from 1."""

    number: int
    source: str


@dataclass(frozen=True)
class Notebook:
    """A notebook as it was read.

    digest: SHA-256 of its bytes; "" if it could not be read, and then another try may help.
    lesson: its number, such as "02", or None.
    problem: why it cannot be graded, or "".
    """

    digest: str
    lesson: str | None
    cells: tuple[Cell, ...]
    problem: str = ""


class Unreadable(Exception):
    """Says in plain words why a file cannot be read or is not a notebook."""


def read_notebook(path: Path, student: str = "") -> Notebook:
    """The notebook at `path`. Never raises, whatever is there.

    student: takes the files in Python along that the student has handed in beside it. They
        become cells, numbered 0, which write them.
    """
    digest, by_name = "", _lesson_of_name(path.name)
    try:
        data, beside = read_file(path), files_beside(path, student)
        digest = digest_of(data, beside)
        cells = _cells(data)
    except Unreadable as problem:
        return Notebook(digest, by_name, (), str(problem))
    lesson = (
        _most_named(map(_lessons_marked, cells))
        or _most_named(map(_lessons_of_answers, cells))
        or by_name
    )
    code = tuple(
        Cell(number, _source(cell))
        for number, cell in enumerate(cells, 1)
        if cell.get("cell_type") == "code"
    )
    files = tuple(Cell(0, f"%%writefile {name}\n{text}") for name, text in beside)
    return Notebook(
        digest,
        lesson,
        files + code,
        "" if lesson else "nothing in this notebook says which lesson it is",
    )


def digest_of(data: bytes, beside: tuple[tuple[str, str], ...] = ()) -> str:
    """SHA-256 of a notebook's bytes, and of the files beside it if there are any."""
    return hashlib.sha256(data + (repr(beside).encode() if beside else b"")).hexdigest()


def files_beside(path: Path, student: str) -> tuple[tuple[str, str], ...]:
    """The files in Python beside a notebook, by name: plain ones, in UTF-8, that are small.

    None for a notebook that is not in its student's own folder: those beside it may be
    somebody else's.
    """
    is_alone = text_of(path.stem) == student and text_of(path.parent.name) != student
    found, room = [], LARGEST_BESIDE
    for file in [] if is_alone or not student else sorted(path.parent.glob("*.py")):
        with suppress(Unreadable, UnicodeDecodeError):
            if file.stem.isidentifier() and file.lstat().st_size <= room:
                text = read_file(file).decode("utf-8")
                room -= len(text.encode())
                found.append((file.name, text))
    return tuple(found[:MOST_BESIDE])


def read_file(path: Path) -> bytes:
    """All bytes of a plain file, as they were at one time.

    Raises Unreadable for anything else.
    """
    try:
        _expect_file(path.lstat())  # before opening it, which could disturb a pipe or a device
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            before = os.fstat(file.fileno())
            _expect_file(before)
            data = file.read(LARGEST_FILE)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise Unreadable(f"this file cannot be read: {error.strerror}") from None
    if len(data) != before.st_size or (after.st_size, after.st_mtime_ns) != (
        before.st_size,
        before.st_mtime_ns,
    ):
        raise Unreadable("this file changed while it was read")
    return data


def _expect_file(about: os.stat_result):
    if stat.S_ISLNK(about.st_mode):
        raise Unreadable("this is a link, and links are not followed")
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable("this is not a file")
    if about.st_size > LARGEST_FILE:
        raise Unreadable(
            f"this file has {about.st_size >> 20} MB, "
            f"and a notebook may have {LARGEST_FILE >> 20}"
        )


def _without_bulk(data: bytes) -> bytes:
    """The JSON of a notebook. Each list of outputs, and the like, has become null.

    It is not parsed for this, because parsing takes thirty times the memory.
    """
    parts, done = [], 0
    while start := _BULK.search(data, done):
        parts += [data[done : start.end()], b"null"]
        done = _end_of_value(data, start.end())
    return b"".join([*parts, data[done:]])


def _end_of_value(data: bytes, start: int) -> int:
    """Where the list or object that begins at `start` ends, or the end of the data."""
    depth, in_string = 0, False
    for mark in _MARK.finditer(data, start):
        match mark[0]:
            case b'"':
                in_string = not in_string
            case b"[" | b"{" if not in_string:
                depth += 1
            case b"]" | b"}" if not in_string:
                depth -= 1
                if depth == 0:
                    return mark.end()
    return len(data)


def _cells(data: bytes) -> list[dict]:
    code = _without_bulk(data)
    if len(code) > LARGEST_CODE:
        raise Unreadable(
            f"this notebook has {len(code) >> 20} MB without its outputs, "
            f"and may have {LARGEST_CODE >> 20}"
        )
    try:
        content = json.loads(code)
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON ({error})" if data.strip() else "it is empty"
        raise Unreadable(f"this is not a notebook: {reason}") from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise Unreadable("this is not a notebook: it has no list of cells")
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _source(cell: dict) -> str:
    source = cell.get("source")
    if isinstance(source, list):
        return "".join(map(str, source))
    return source if isinstance(source, str) else ""


def _most_named(of_cells) -> str | None:
    lessons = checks.lessons()
    known = Counter(
        lesson for found in of_cells for lesson in sorted(found) if lesson in lessons
    )
    return max(known, key=known.__getitem__, default=None)  # of equals the first


def _lessons_marked(cell: dict) -> set[str]:
    """The lessons that are named by a cell's metadata, its id, or a call of `check` in it."""
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    grader = metadata.get("nbgrader")
    names = [cell.get("id"), grader.get("grade_id") if isinstance(grader, dict) else None]
    marks = [re.match(r"(?:exercise|check)-(\d+)-\d+", str(name)) for name in names]
    marks += [
        re.match(r"(\d+)\.\d+$", str(metadata.get(key))) for key in ("exercise", "check")
    ]
    marks += re.finditer(r"""\bcheck\(\s*["'](\d+)\.\d+["']""", _source(cell))
    return {f"{int(mark[1]):02d}" for mark in marks if mark and len(mark[1]) < 3}


def _lessons_of_answers(cell: dict) -> set[str]:
    """The lessons whose answers a cell defines."""
    names = re.findall(r"^(?:def |class )?(\w+)(?=\s*[(:=])", _source(cell), re.MULTILINE)
    return {_lessons_by_answer()[name] for name in names if name in _lessons_by_answer()}


def _lesson_of_name(file_name: str) -> str | None:
    return next(
        (
            number
            for number in re.findall(r"(?<!\d)\d\d(?!\d)", file_name)
            if number in checks.lessons()
        ),
        None,
    )


@functools.cache
def _lessons_by_answer() -> dict[str, str]:
    return {
        exercise.answer_name: lesson
        for lesson in checks.lessons()
        for exercise in checks.exercises_of(lesson)
    }
