"""Remembers which exercises are done and which mistakes were made, on this machine only."""

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from lessons_lib.checks import solution_cells
from lessons_lib.paths import progress_folder
from lessons_lib.processes.locks import one_at_a_time
from lessons_lib.whole_files import write_whole

NOTHING: dict[str, Any] = {"passed": False, "mistakes": []}
_in_solutions: dict[str, dict] = {}  # a solution notebook's record; ends with its kernel


def load() -> dict[str, dict]:
    """The record of each exercise, by its id; empty if nothing is recorded.

    A record is `{"passed": bool, "mistakes": [slug, ...], "tries": int}`. The tries are the
    checks up to the first that passed. Records of earlier versions have no tries.
    """
    if solution_cells.are_at_home():
        return _in_solutions
    with suppress(OSError):
        return {key: entry for key, entry in (_read() or {}).items() if _is_readable(entry)}
    return {}


def remember(exercise: str, passed: bool, mistake: str | None):
    """Adds one check to the record. A full or read-only disk does not break a lesson."""
    if solution_cells.are_at_home():
        # passing our own solution is no progress of a learner
        _add(_in_solutions, exercise, passed, mistake)
        return
    with suppress(OSError), one_at_a_time(progress_folder() / "lock"):
        record = _read()
        if record is None or not _is_readable(record.get(exercise, NOTHING)):
            _keep_aside()
            record = {key: each for key, each in (record or {}).items() if key != exercise}
        _add(record, exercise, passed, mistake)
        write_whole(_file(), json.dumps(record, indent=1, sort_keys=True), mode=0o600)


def _read() -> dict[str, Any] | None:
    """The content of the file, by exercise, not yet validated. None if it is not a record.

    Raises OSError if the file exists and cannot be read now.
    """
    try:
        record = json.loads(_file().read_bytes() or b"{}")
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_readable(entry) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("passed"), bool)
        and isinstance(entry.get("mistakes"), list)
        and isinstance(entry.get("tries", 0), int)
    )


def _keep_aside():
    """Copies a file that cannot be understood to another name, so that nothing is lost."""
    copies = (_file().with_name(f"unreadable-{number}.json") for number in itertools.count(1))
    free = next(copy for copy in copies if not copy.exists())
    write_whole(free, _file().read_bytes(), mode=0o600)


def _add(record: dict[str, dict], exercise: str, passed: bool, mistake: str | None):
    entry = record.setdefault(exercise, {"passed": False, "mistakes": []})
    entry["tries"] = entry.get("tries", 0) + (
        # An earlier version did not count tries. There was at least one for each mistake.
        0 if entry["passed"] else 1 + max(0, len(entry["mistakes"]) - entry.get("tries", 0))
    )
    entry["passed"] = entry["passed"] or passed
    if mistake and mistake not in entry["mistakes"]:
        entry["mistakes"].append(mistake)


def _file() -> Path:
    return progress_folder() / "progress.json"
