"""Remembers which exercises are done and which mistakes were made, on this machine only."""

import fcntl
import json
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from lessons_lib import solution_cells
from lessons_lib.paths import progress_folder

_in_solutions: dict[str, dict] = {}  # a solution notebook's record; ends with its kernel


def load() -> dict[str, dict]:
    """Exercise id to `{"passed": bool, "mistakes": [slug, ...]}`; empty if there is none."""
    return _in_solutions if solution_cells.are_at_home() else _read()


def _read() -> dict[str, dict]:
    try:
        record = json.loads(_file().read_text(encoding="utf-8"))
        return {
            exercise: entry
            for exercise, entry in record.items()
            if isinstance(entry.get("passed"), bool)
            and isinstance(entry.get("mistakes"), list)
        }
    except (OSError, ValueError, AttributeError):
        return {}


def remember(exercise: str, passed: bool, mistake: str | None):
    """Adds one check to the record. A full or read-only disk does not break a lesson."""
    if solution_cells.are_at_home():
        _add(_in_solutions, exercise, passed, mistake)  # our own solution is no progress
        return
    with suppress(OSError), _one_at_a_time():
        record = _read()
        _add(record, exercise, passed, mistake)
        replace_file(_file(), json.dumps(record, indent=1, sort_keys=True))


def _add(record: dict[str, dict], exercise: str, passed: bool, mistake: str | None):
    entry = record.setdefault(exercise, {"passed": False, "mistakes": []})
    entry["passed"] = entry["passed"] or passed
    if mistake and mistake not in entry["mistakes"]:
        entry["mistakes"].append(mistake)


@contextmanager
def _one_at_a_time():
    """Lets one kernel record at a time. Each one reads what the others have written."""
    with open(progress_folder() / "lock", "w") as lock:  # the lock ends with its process
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _file() -> Path:
    return progress_folder() / "progress.json"


def replace_file(path: Path, text: str) -> None:
    """Writes the whole file, or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
