"""How a process of Python starts in a learner's folder, on anybody's machine.

The folder may hold a queue.py or random.py of the learner's own, which Python would take for
its own module. And the temporary folder may be no place for a socket.
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
    """A Python that starts inside looks for no module in the present folder, and a socket
    that is made inside has a place that takes one.
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
    """A sys.path on which the present folder, and `folders`, come after all others."""
    own = {"", *folders}
    with suppress(OSError):
        own.add(os.getcwd())
    return sorted(path, key=lambda entry: entry in own)
