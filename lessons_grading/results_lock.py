"""Only one grader at a time may use a folder of results."""

import fcntl
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

LONGEST_TEMPORARY = 30  # characters; a socket's name, four folders deeper, may have about 100


class Claim:
    """Holds the folder `results` until it is closed or this process ends. Makes the folder.

    In a `with` statement it gives a folder for temporary files, and deletes it at the end. It
    also deletes what a killed grader left there and among the results.

    Raises ValueError, with a sentence, if another grader holds the folder.
    """

    def __init__(self, results: Path):
        results.mkdir(parents=True, exist_ok=True)
        self._file = open(results / ".claim", "a+")
        try:
            self._lock(results)
            self._delete_what_was_left(results)
            temporary = "/tmp" if len(tempfile.gettempdir()) > LONGEST_TEMPORARY else None
            self._scratch = tempfile.mkdtemp(prefix="grading-", dir=temporary)
            self._note({"process": os.getpid(), "scratch": self._scratch})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Path:
        return Path(self._scratch)

    def __exit__(self, *_):
        self.close()

    def close(self):
        shutil.rmtree(self._scratch, ignore_errors=True)
        with suppress(OSError):
            self._note({})
        self._file.close()  # the lock ends with it

    def _lock(self, results: Path):
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = self._noted().get("process", "unknown")
            raise ValueError(
                f"another grader is at work on {results}, process {process}: "
                "wait until it is done, or choose another --results"
            ) from None
        except OSError:  # some file systems have no locks
            pass

    def _delete_what_was_left(self, results: Path):
        for partial in (*results.glob(".*.partial"), *results.glob("*/.*.partial")):
            partial.unlink(missing_ok=True)
        left = Path(str(self._noted().get("scratch", "")))
        if left.is_absolute() and left.name.startswith("grading-"):
            shutil.rmtree(left, ignore_errors=True)

    def _note(self, about: dict):
        self._file.truncate(0)
        self._file.write(json.dumps(about))
        self._file.flush()

    def _noted(self) -> dict:
        self._file.seek(0)
        try:
            return dict(json.load(self._file))
        except (ValueError, TypeError):
            return {}
