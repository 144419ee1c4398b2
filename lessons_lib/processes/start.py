"""Starts Python processes safely, whatever is in the learner's folder and on the machine.

The folder may hold a learner's own queue.py or random.py, which Python would import instead of
its own module. And the name of the temporary folder may be too long for a socket.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LONGEST = 60  # bytes of a folder's name; a socket's whole name has at most 108, on macOS 104
_one_at_a_time = threading.Lock()


@contextmanager
def safely() -> Iterator[None]:
    """Within this, a new Python process imports no module from the current folder, and a new
    socket is in a folder whose name is short enough.
    """
    with _one_at_a_time:
        before, folder = os.environ.get("PYTHONSAFEPATH"), tempfile.tempdir
        os.environ["PYTHONSAFEPATH"] = "1"
        if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
            tempfile.tempdir = "/tmp"
        try:
            yield
        finally:
            tempfile.tempdir = folder
            del os.environ["PYTHONSAFEPATH"]
            if before is not None:
                os.environ["PYTHONSAFEPATH"] = before


def learners_last(path: list[str], *folders: str | None) -> list[str]:
    """A sys.path on which the current folder, and `folders`, come after all other folders."""
    own = {"", *folders}
    with suppress(OSError):
        own.add(os.getcwd())
    return sorted(path, key=lambda entry: entry in own)
