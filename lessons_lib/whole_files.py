"""Writes files whole or not at all."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[TextIO]:
    """A file to write in pieces. It takes its place at the end, if nothing is raised.

    Until then the old file stays as it was, so a full disk cuts nothing off. Text is written
    as UTF-8, and half a pair of surrogates as an escape.

    mode: the permissions of the file, less those that the user's umask takes away.
    Raises OSError if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # a digest fits into a name, however long the name was
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    partial = path.with_name(f".{digest}.{os.getpid()}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Writes a whole file, as `whole_file` does."""
    with whole_file(path, mode) as file:
        if isinstance(content, str):
            file.write(content)
        else:
            file.buffer.write(content)
