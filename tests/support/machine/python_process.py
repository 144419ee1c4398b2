"""Python in a process of its own."""

import os
import subprocess
import sys

from lessons_lib.paths import ROOT


def python(*words, cwd=ROOT, **variables: str) -> subprocess.CompletedProcess:
    """Runs Python with these words to its end, and gives what it said.

    variables: further ones of its environment.
    """
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True
    )
