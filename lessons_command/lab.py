"""Opens JupyterLab on the learner's copies of the lessons."""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from lessons_command import copies, jupyterlab
from lessons_lib import whole
from lessons_lib.paths import NOTEBOOKS

FIRST = "00_start_here.ipynb"


def open_lessons(folder: Path, arguments: Sequence[str] = (), only_copy: bool = False) -> int:
    """Copies the lessons into `folder` and becomes JupyterLab there.

    arguments: for JupyterLab.
    Returns an exit status if JupyterLab does not start.
    """
    if damage := whole.faults():
        print(f"The course is not whole: {damage}.", file=sys.stderr)
        print(f"To mend it: {whole.remedy()}", file=sys.stderr)
        return 1
    try:
        copied = copies.bring(NOTEBOOKS, folder, metadata.version(whole.NAME))
    except copies.CannotCopy as error:
        print(error, file=sys.stderr)
        return 1
    print(in_words(copied, folder), flush=True)
    if not only_copy:
        jupyterlab.start(folder / FIRST, folder, arguments)
    return 0


def in_words(copied: copies.Copied, folder: Path) -> str:
    """What was copied, for the learner."""
    lines = [f"The lessons are in {folder.resolve()}."]
    if copied.updated:
        lines.append(f"Brought up to date: {', '.join(copied.updated)}.")
    for name, beside in copied.beside:
        lines.append(
            f"{name} has your own changes and is as you left it. The new version is beside "
            f"it: {beside}. Go on in yours, or copy your answers into the new one."
        )
    return "\n".join(lines)
