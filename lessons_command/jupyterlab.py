"""Starts JupyterLab for the course: its settings, and the folder that it shows.

python -m lessons_command.jupyterlab notebooks/00_start_here.ipynb [JupyterLab's arguments]

The settings are in `jupyter_config/`. They are defaults: what learners set themselves counts.
`jupyter_data/` has the kernel: this Python, with `lessons_command.kernel` from its start.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from lessons_lib.paths import ROOT

CONFIG = Path(__file__).parent / "jupyter_config"
DATA = Path(__file__).parent / "jupyter_data"
# Both start in a learner's folder, whose queue.py could be taken for Python's own.
SAFE = ["-P"]
# A learner who says where JupyterLab's root is gets it there.
_ROOT_ARGUMENTS = ("--ServerApp.root_dir", "--notebook-dir")


def start(notebook: Path, root: Path, arguments: Sequence[str] = ()) -> NoReturn:
    """Becomes JupyterLab, which opens `notebook` and shows the files below `root`.

    arguments: further ones, for JupyterLab.
    """
    words = command(notebook, root, arguments)
    os.execve(words[0], words, environment(os.environ))


def has_hub() -> bool:
    """Whether this Python has JupyterHub."""
    return find_spec("jupyterhub") is not None


def start_on_hub(arguments: Sequence[str] = ()) -> NoReturn:
    """Becomes the server of a learner on a hub, which says by variables what it opens.

    arguments: further ones, for JupyterHub's server.
    """
    words = [sys.executable, *SAFE, "-m", "jupyterhub.singleuser", *arguments]
    os.execve(words[0], words, environment(os.environ))


def command(notebook: Path, root: Path, arguments: Sequence[str] = ()) -> list[str]:
    """The command that `start` becomes."""
    # `-m jupyter lab` would look for a program, which may be another Python's
    words = [sys.executable, *SAFE, "-m", "jupyterlab", str(notebook.resolve())]
    if not any(argument.startswith(_ROOT_ARGUMENTS) for argument in arguments):
        words.append(f"--ServerApp.root_dir={root.resolve()}")
    return [*words, *arguments]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """`given`, with the course's settings and kernel after those that are already there."""
    ours = {"JUPYTER_CONFIG_PATH": CONFIG, "JUPYTER_PATH": DATA}
    found = {name: [*given.get(name, "").split(os.pathsep), str(ours[name])] for name in ours}
    return {**given, **{name: os.pathsep.join(filter(None, found[name])) for name in ours}}


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        usage = "python -m lessons_command.jupyterlab notebooks/00_start_here.ipynb"
        sys.exit(f"Say which notebook: {usage}")
    start(Path(sys.argv[1]), ROOT, sys.argv[2:])
