"""Files that are written whole or not at all, and what decides whether a grade still holds."""

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from lessons_content.mistakes.teachers_mistakes import further_files
from lessons_lib import rooms
from lessons_lib.paths import ROOT


def write_whole(file: Path, text: str):
    """Writes the whole file, or leaves what was there."""
    with whole_file(file) as writing:
        writing.write(text)


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """A file to write in pieces. It takes its place at the end, if nothing is raised."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # a digest fits into a name, however long the name was
    digest = hashlib.sha256(os.fsencode(file.name)).hexdigest()
    partial = file.with_name(f".{digest}.partial")
    try:
        with open(partial, "w", encoding="utf-8", errors="backslashreplace") as new:
            yield new
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@functools.cache
def course_digest() -> str:
    """Changes with everything in the course that may decide a grade, as it was at first."""
    return _digest_of(
        [
            path
            for folder in rooms.JUDGING
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix not in (".pyc", ".html") and path.is_file()
        ]
    )


def mistakes_digest() -> str:
    """Changes with a teacher's further mistakes."""
    return _digest_of(further_files(), lambda path: path.name)


def _digest_of(files: list[Path], name=lambda path: os.path.relpath(path, ROOT)) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(repr((name(path), path.read_bytes())).encode())
    return digest.hexdigest()
