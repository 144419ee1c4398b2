"""Builds the JupyterLab extension that shows C++ in colour: `python -m tools.colour`.

Its source is here. The built extension is in lessons_lib/start/labextension, and is committed.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from lessons_lib.paths import ROOT

SOURCE = Path(__file__).parent
BUILT = ROOT / "lessons_lib" / "start" / "labextension"


def main() -> int:
    """Returns 1 if Node.js is missing, or npm's exit status."""
    if not shutil.which("npm"):
        print("npm is not installed. It comes with Node.js, version 20.19 or newer.")
        return 1
    folder = ROOT / ".build" / "colour"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder)
    for command in ("npm ci --ignore-scripts --no-audit --no-fund", "npm run build"):
        run = subprocess.run(command.split(), cwd=folder)
        if run.returncode:
            return run.returncode
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(folder / "labextension", BUILT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
