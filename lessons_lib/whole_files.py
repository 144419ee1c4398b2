"""Writes files whole or not at all."""

import hashlib
import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Writes a file, or leaves the old one as it was: a full disk cuts nothing off.

    content: text is written as UTF-8.
    mode: of a file that everybody may read, less what the user's umask takes away.
    Raises OSError if it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    # a digest fits into a name, however long the name was
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    partial = path.with_name(f".{digest}.{os.getpid()}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
