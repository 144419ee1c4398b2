"""Installs the packages that a tool needs besides the tests' packages, at its first call."""

import subprocess

from lessons_lib.paths import ROOT


def ready(extra: str) -> None:
    """Installs an extra of pyproject.toml into .venv.

    Raises CalledProcessError if it cannot.
    """
    subprocess.run(["make", "--silent", f".venv/ready-{extra}"], cwd=ROOT, check=True)
