"""Lets one process at a time do something, where the file system has locks."""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits until no other process holds `lock`. The lock ends with its process.

    NFS may have no locks, and the lock's file may not be a file. Then nothing waits. So the
    code inside has to be right without the lock too.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            fcntl.flock(stack.enter_context(open(lock, "w")), fcntl.LOCK_EX)
        yield
