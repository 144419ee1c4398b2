"""Opens JupyterLab on the learner's copies of the lessons, on their machine or on a hub."""

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
    copied = _copy(folder)
    if copied and not only_copy:
        jupyterlab.start(folder / FIRST, folder, arguments)
    return 0 if copied else 1


def open_on_hub(folder: Path, arguments: Sequence[str] = ()) -> int:
    """Copies the lessons into `folder` and becomes the server that JupyterHub starts for a
    learner. It starts without new copies too: a full home has to be emptied from somewhere.

    arguments: for JupyterHub's server.
    Returns an exit status if the server does not start.
    """
    if not jupyterlab.has_hub():
        print(
            "JupyterHub is not where the course is installed. Install both into one "
            f"environment: {sys.executable} -m pip install jupyterhub",
            file=sys.stderr,
        )
        return 1
    _copy(folder)
    jupyterlab.start_on_hub(arguments)


def _copy(folder: Path) -> bool:
    """Says what was copied, or why it could not be, and returns whether it was."""
    if damage := whole.faults():
        print(f"The course is not whole: {damage}.", file=sys.stderr)
        print(f"To mend it: {whole.remedy()}", file=sys.stderr)
        return False
    try:
        copied = copies.bring(NOTEBOOKS, folder, metadata.version(whole.NAME))
    except copies.CannotCopy as error:
        print(error, file=sys.stderr)
        return False
    print(in_words(copied, folder), flush=True)
    return True


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
