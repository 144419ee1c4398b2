"""Makes the course's wheel, in .build/wheel: `python -m tools.wheel`."""

import subprocess
import sys

from lessons_lib.paths import ROOT
from tools.notebooks import build


def main() -> int:
    """Returns pip's exit status, or 1 if a notebook differs from the one to hand out."""
    if status := build.main(["--handed-out"]):
        return status
    folder = ROOT / ".build" / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    made = subprocess.run([*pip, "--no-deps", "--wheel-dir", str(folder), "."], cwd=ROOT)
    print(*folder.glob("*.whl"), sep="\n")
    return made.returncode


if __name__ == "__main__":
    sys.exit(main())
