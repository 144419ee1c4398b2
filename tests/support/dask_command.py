"""`make grade` on Dask workers, where a stand-in grades: `python -m dask_command FOLDER …`.

With CLOCK in its environment it has the clock of clocks/sitecustomize.py.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

from dask_cluster import GRADER
from lessons_grading import command
from lessons_grading.cluster import Cluster


def begin(folder: Path, address: str, *words: str, path=None, **environment):
    """The command as a process, with what it prints in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "dask_command", folder, "--scheduler", address, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path or sys.path)} | environment,
    )


if __name__ == "__main__":
    # A shell that runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command.Cluster = functools.partial(Cluster, grader=GRADER)
    sys.exit(command.main())
