"""The learner's own copies of the notebooks: made, brought up to date, never overwritten.

A list in the folder, `.lessons.json`, says what each file was when it was copied. A notebook
counts as changed if the text of its cells is another one: running it does not change it.
"""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

LIST = ".lessons.json"


class CannotCopy(Exception):
    """Says why the folder cannot take the lessons, and what to do."""


@dataclass
class Copied:
    """What became of the files, by their paths in the folder.

    kept: changed by the learner, and as new as the course.
    beside: changed by the learner; the new version is beside it, under the second name.
    """

    new: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    beside: list[tuple[str, str]] = field(default_factory=list)


def bring(notebooks: Path, folder: Path, version: str) -> Copied:
    """Copies what is in `notebooks` into `folder`, and leaves the learner's work alone.

    version: the course's, for the names of files that are put beside a changed one.
    Raises CannotCopy if the folder cannot be made, read or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = _read_list(folder / LIST)
        copied = Copied()
        for source in sorted(path for path in notebooks.rglob("*") if path.is_file()):
            name = source.relative_to(notebooks).as_posix()
            _bring_one(source, folder, name, version, known, copied)
            _write(folder / LIST, json.dumps(known, indent=1).encode())
        return copied
    except FileExistsError as error:
        raise CannotCopy(
            f"{error.filename} is a file. Name a folder for the lessons: "
            "paged-attention-course lab FOLDER"
        ) from None
    except OSError as error:
        raise CannotCopy(
            f"The lessons cannot be copied into {folder} ({error.strerror}). Name a folder "
            "that you may write to: paged-attention-course lab FOLDER"
        ) from None


def _bring_one(
    source: Path, folder: Path, name: str, version: str, known: dict, copied: Copied
):
    content, mine = source.read_bytes(), folder / name
    ours = _digest(content)
    if not mine.exists():
        _write(mine, content)
        copied.new.append(name)
    else:
        theirs = _digest(mine.read_bytes())
        if theirs == ours:
            pass
        elif theirs == known.get(name):
            _write(mine, content)
            copied.updated.append(name)
        elif known.get(name) == ours:
            copied.kept.append(name)
        else:
            beside = mine.with_name(f"{mine.stem} ({version}){mine.suffix}")
            if not beside.exists():
                _write(beside, content)
            copied.beside.append((name, beside.relative_to(folder).as_posix()))
    known[name] = ours


def _digest(content: bytes) -> str:
    """Of a notebook, the text of its cells; of any other file, its bytes."""
    try:
        cells = json.loads(content)["cells"]
        texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
        content = repr(texts).encode("utf-8", "backslashreplace")
    except (ValueError, TypeError, KeyError):
        pass
    return hashlib.sha256(content).hexdigest()


def _read_list(path: Path) -> dict[str, str]:
    """Without a list, or with a broken one, every file that differs counts as changed."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in known.items()}
    except (FileNotFoundError, ValueError, AttributeError):
        return {}


def _write(path: Path, content: bytes):
    """Whole or not at all, so that a full disk or a lost connection cuts nothing off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
