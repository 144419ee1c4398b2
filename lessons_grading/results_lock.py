"""Only one grader at a time may use a folder of results."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class ResultsLock:
    """Holds the folder `results` until it is closed or this process ends. Makes the folder.

    Then it deletes what a killed grader has left there half written.
    Raises ValueError, with a sentence, if another grader holds the folder.
    """

    def __init__(self, results: Path):
        results.mkdir(parents=True, exist_ok=True)
        self._file = open(results / ".claim", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            process = self._file.read().strip() or "unknown"
            self._file.close()
            raise ValueError(
                f"another grader is at work on {results}, process {process}: "
                "wait until it is done, or choose another --results"
            ) from None
        except OSError:  # some file systems have no locks
            pass
        with suppress(OSError):  # a full disk: the store will say so
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()
        for partial in (*results.glob(".*.partial"), *results.glob("*/.*.partial")):
            partial.unlink(missing_ok=True)

    def __enter__(self) -> "ResultsLock":
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """The lock ends with the file."""
        with suppress(OSError):
            self._file.truncate(0)
        self._file.close()
