"""The end of processes."""

import time
from multiprocessing import active_children

import psutil

from lessons_lib.processes import isolation


def wait_until_ended(pid: int):
    """Waits for ever for a process that does not end, and need not be a child of the test."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def children_left() -> list:
    """Children of the test's process, without the one that waits for its next check."""
    isolation.end_waiting()
    return active_children()
