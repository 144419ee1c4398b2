"""Takes the README's pictures again, in a real browser: `python -m tools.screenshots`."""

import os
import subprocess
import sys

from lessons_lib.paths import ROOT

FOLDER = "tests/screenshots"


def main() -> int:
    environment = os.environ | {"SCREENSHOTS": FOLDER}
    for words in (["-m", "pytest", "tests/course/test_browser.py"], [f"{FOLDER}/film.py"]):
        run = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment)
        if run.returncode:
            return run.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
