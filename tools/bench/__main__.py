"""Runs a benchmark: `python -m tools.bench NAME …`, or `make bench NAME=… ARGS=…`.

Benchmarks that a lesson calls too are in lessons_content/lesson_NN/bench/, the others here.
"""

import importlib
import sys
from pathlib import Path

from lessons_lib.paths import ROOT


def benchmarks() -> dict[str, Path]:
    """Each benchmark's name, and its file. A benchmark is a file with a `main`."""
    folders = [Path(__file__).parent, *sorted(ROOT.glob("lessons_content/lesson_*/bench"))]
    files = [file for folder in folders for file in sorted(folder.glob("[a-z]*.py"))]
    return {file.stem: file for file in files if "\ndef main(" in file.read_text("utf-8")}


def main(words: list[str]) -> int:
    """Returns the benchmark's exit status, or 2 if there is no benchmark of that name.

    Without a name it lists all.
    """
    found = benchmarks()
    if not words or words[0] not in found:
        print("python -m tools.bench NAME …; the names are", ", ".join(sorted(found)))
        return 2 if words else 0
    name = ".".join(found[words[0]].relative_to(ROOT).with_suffix("").parts)
    return importlib.import_module(name).main(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
