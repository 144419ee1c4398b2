"""Remembers, on this machine only, which exercises are done and which mistakes were met."""

import json
import os
import tempfile
from pathlib import Path

from lessons_lib.paths import SOLUTIONS, progress_folder

_in_solutions: dict[str, dict] = {}  # a solution notebook's own record, which ends with its kernel


def load() -> dict[str, dict]:
    """Exercise id to `{"passed": bool, "mistakes": [slug, ...]}`; empty where nothing was recorded or it cannot be read."""
    if Path.cwd() == SOLUTIONS:
        return _in_solutions
    try:
        record = json.loads(_file().read_text(encoding="utf-8"))
        return {exercise: entry for exercise, entry in record.items()
                if isinstance(entry.get("passed"), bool) and isinstance(entry.get("mistakes"), list)}
    except (OSError, ValueError, AttributeError):
        return {}


def remember(exercise: str, passed: bool, mistake: str | None):
    """Adds one check to the record. A full or read-only disk never breaks a lesson."""
    record = load()
    entry = record.setdefault(exercise, {"passed": False, "mistakes": []})
    entry["passed"] = entry["passed"] or passed
    if mistake and mistake not in entry["mistakes"]:
        entry["mistakes"].append(mistake)
    if record is _in_solutions:
        return  # that a solution passes is nobody's progress
    try:
        replace_file(_file(), json.dumps(record, indent=1, sort_keys=True))
    except OSError:
        pass


def _file() -> Path:
    return progress_folder() / "progress.json"


def replace_file(path: Path, text: str) -> None:
    """Writes the whole file or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
