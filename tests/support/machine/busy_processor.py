"""A processor that never has time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_processor() -> Iterator[int]:
    """The number of a processor that five endless loops share."""
    processor = min(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {processor})
        yield processor
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
