"""Reads a submitted notebook: which lesson it is, and its code cells. It may be anything."""

import functools
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from lessons_grading.submissions import text_of
from lessons_lib import checks

LARGEST_FILE = 100 << 20  # bytes, with all outputs
# bytes of all cells without outputs; a lesson with all its text has less than one million
LARGEST_CODE = 10 << 20
LARGEST_BESIDE, MOST_BESIDE = 1 << 20, 100  # bytes and number of the files beside a notebook


class Cell(msgspec.Struct, frozen=True):
    """A code cell. `number` is its place among all cells of the notebook, from 1."""

    number: int
    source: str


class Notebook(msgspec.Struct, frozen=True):
    """A notebook as it was read.

    digest: SHA-256 of its bytes; "" if it could not be read, and then another try may help.
    lesson: its number, such as "02", or None.
    problem: why it cannot be graded, or "".
    files: the files in Python beside it, by name.
    """

    digest: str
    lesson: str | None
    cells: tuple[Cell, ...] = ()
    problem: str = ""
    files: dict[str, str] = {}


class _Cell(msgspec.Struct, gc=False):
    """The parts of a cell that are read. Its source stays JSON until its size is known."""

    cell_type: Literal["code", "markdown", "raw", "heading"]
    source: msgspec.Raw = msgspec.Raw(b"null")


class _File(msgspec.Struct):
    """The parts of a notebook that are read. All else, such as outputs and the state of
    widgets, is passed over. So a file costs at most a few times its size, and a second.
    """

    cells: list[_Cell]


class Unreadable(Exception):
    """Says in plain words why a file cannot be read or is not a notebook."""


def read_notebook(path: Path, student: str = "", root: Path | None = None) -> Notebook:
    """The notebook at `path`. Never raises, whatever is there.

    student: whose notebook it is. The files in Python that the student has handed in with it
        are read too. "" for none.
    root: a folder around it. No link below that folder is followed.
    """
    digest = ""
    try:
        data, files = read_files(path, student, root)
        digest = digest_of(data, files)
        cells = _cells(data)
    except Unreadable as reason:
        return Notebook(digest, _lesson_of([], path.name), problem=str(reason))
    code = tuple(
        Cell(number, _text(cell.source))
        for number, cell in enumerate(cells, 1)
        if cell.cell_type == "code"
    )
    lesson = _lesson_of([cell.source for cell in code], path.name)
    problem = "" if lesson else "nothing in this notebook says which lesson it is"
    return Notebook(digest, lesson, code, problem, files)


def digest_of(data: bytes, files: dict[str, str] | None = None) -> str:
    """SHA-256 of a notebook's bytes, and of the files beside it if there are any."""
    return hashlib.sha256(data + (repr(files).encode() if files else b"")).hexdigest()


def read_files(
    path: Path, student: str, root: Path | None = None
) -> tuple[bytes, dict[str, str]]:
    """The bytes of a notebook, and the files in Python beside it, by name.

    These are plain files, in UTF-8, that are small. There are none for a notebook outside of
    its student's folder: the files there may be another student's.
    Raises Unreadable.
    """
    is_alone = text_of(path.stem) == student and text_of(path.parent.name) != student
    found: dict[str, str] = {}
    try:
        with _opened(path.parent, root or path.parent) as folder:
            data, room = _read(path.name, folder, LARGEST_FILE), LARGEST_BESIDE
            for name in [] if is_alone or not student else sorted(os.listdir(folder)):
                stem, ending = os.path.splitext(name)
                if ending == ".py" and stem.isidentifier() and len(found) < MOST_BESIDE:
                    with suppress(Unreadable, UnicodeDecodeError):
                        code = _read(name, folder, room)
                        found[name] = code.decode("utf-8")
                        room -= len(code)
    except OSError as error:
        raise Unreadable(f"this file cannot be read: {error.strerror}") from None
    return data, found


@contextmanager
def _opened(folder: Path, root: Path) -> Iterator[int]:
    """A descriptor of the folder, reached from `root` without following a link."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.relative_to(root).parts:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _read(name: str, folder: int, largest: int) -> bytes:
    """All bytes of a plain file, as they were at one time. Raises Unreadable, or OSError."""
    # before opening it, which could disturb a pipe or a device
    _expect_file(os.lstat(name, dir_fd=folder), largest)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        before = os.fstat(file.fileno())
        _expect_file(before, largest)
        data = file.read(largest)
        after = os.fstat(file.fileno())
    is_whole = len(data) == before.st_size == after.st_size
    if not is_whole or before.st_mtime_ns != after.st_mtime_ns:
        raise Unreadable("this file changed while it was read")
    return data


def _expect_file(about: os.stat_result, largest: int):
    if stat.S_ISLNK(about.st_mode):
        raise Unreadable("this is a link, and links are not followed")
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable("this is not a file")
    if about.st_size > largest:
        raise Unreadable(
            f"this file has {about.st_size >> 20} MB, and a notebook may have {largest >> 20}"
        )


def _cells(data: bytes) -> list[_Cell]:
    try:
        cells = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_File).cells
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = str(error) if data.strip() else "it is empty"
        raise Unreadable(f"this is not a notebook: {reason}") from None
    size = sum(len(cell.source) for cell in cells)
    if size > LARGEST_CODE:
        raise Unreadable(
            f"this notebook has {size >> 20} MB without its outputs, "
            f"and may have {LARGEST_CODE >> 20}"
        )
    return cells


def _text(source: msgspec.Raw) -> str:
    """The text of a cell, or "" if it is nested too deep or has half a character."""
    lines: object = ""
    with suppress(msgspec.MsgspecError, RecursionError):
        lines = msgspec.json.decode(source)
    lines = lines if isinstance(lines, list) else [lines]
    return "".join(line for line in lines if isinstance(line, str))


def _lesson_of(cells: list[str], file_name: str) -> str | None:
    """The lesson whose checks most cells call, or whose answers most cells define; or the one
    that the file's name has.
    """
    by_answer = _lessons_by_answer()
    checked, answered = Counter[str](), Counter[str]()
    for source in cells:
        numbers = re.findall(r"""\bcheck\(\s*["'](\d{1,2})\.\d+["']""", source)
        checked.update(sorted({f"{int(number):02d}" for number in numbers}))
        names = re.findall(r"^(?:def |class )?(\w+)(?=\s*[(:=])", source, re.MULTILINE)
        answered.update(sorted({by_answer[name] for name in names if name in by_answer}))
    named = Counter(dict.fromkeys(re.findall(r"(?<!\d)\d\d(?!\d)", file_name), 1))
    for found in (checked, answered, named):
        known = [lesson for lesson, _ in found.most_common() if lesson in checks.lessons()]
        if known:
            return known[0]
    return None


@functools.cache
def _lessons_by_answer() -> dict[str, str]:
    return {
        exercise.answer_name: lesson
        for lesson in checks.lessons()
        for exercise in checks.exercises_of(lesson)
    }
