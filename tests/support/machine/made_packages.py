"""Packages that a test makes up, and a Python that finds them before the real ones."""

import os
import subprocess
import sys
from pathlib import Path

from lessons_lib.paths import ROOT


class Packages:
    """A folder of packages.

    course: the folder that has the course's own.
    """

    def __init__(self, folder: Path, course: Path = ROOT):
        self.folder, self.course = folder, course
        folder.mkdir(exist_ok=True)

    def distribution(self, name: str, version: str, requires=(), files=None) -> None:
        """What pip writes about a package. files: their sizes by path."""
        about = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (about / "METADATA").write_text("\n".join(lines) + "\n")
        if files is not None:
            rows = [f"{path},,{size}\n" for path, size in files.items()]
            (about / "RECORD").write_text("".join(rows))

    def module(self, name: str, text: str = "") -> None:
        """A module; its packages are made too."""
        *packages, last = name.split(".")
        folder = self.folder
        for package in packages:
            folder = folder / package
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()
        (folder / f"{last}.py").write_text(text)

    def run(self, *words, cwd=None, **variables) -> subprocess.CompletedProcess:
        """Runs Python with these words."""
        path = os.pathsep.join([str(self.folder), str(self.course)])
        environment = os.environ | {"PYTHONPATH": path} | variables
        command = [sys.executable, *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=environment
        )
