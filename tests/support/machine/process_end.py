"""The end of a process that is no child of the test."""

import time

import psutil


def wait_until_ended(pid: int):
    """Waits for ever for a process that does not end."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)
