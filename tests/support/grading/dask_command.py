"""`make grade` on Dask workers, where a stand-in grades: `python -m dask_command FOLDER …`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from fake_grader import GRADER
from lessons_grading import command


def begin(folder: Path, address: str, *words: str, **environment):
    """The command as a process, with what it prints in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "dask_command", folder, "--scheduler", address, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
    )


if __name__ == "__main__":
    # A shell that runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(command.main(grader=GRADER))
