"""Starts JupyterLab for the course: its settings, and the folder that it shows.

The settings are in `jupyter_config/`. They are defaults: a learner's own settings win.
`jupyter_data/` has the kernel: this Python, which loads `lessons_lib.start.kernel` first.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from getpass import getuser
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

CONFIG = Path(__file__).parent / "jupyter_config"
DATA = Path(__file__).parent / "jupyter_data"
_ANYWHERE = ("", "0.0.0.0", "::", "*")
# JupyterLab and the kernel start in a learner's folder, which may have its own queue.py.
SAFE = ["-P"]


def start(notebook: Path, root: Path, arguments: Sequence[str] = ()) -> NoReturn:
    """Replaces this process by JupyterLab, which opens `notebook` and shows the files in
    `root`.

    arguments: further arguments for JupyterLab.
    """
    words = command(notebook, root, arguments)
    print("JupyterLab starts …", flush=True)
    os.execve(words[0], words, environment(os.environ))


def has_hub() -> bool:
    """Whether this Python has JupyterHub."""
    return find_spec("jupyterhub") is not None


def start_on_hub(arguments: Sequence[str] = ()) -> NoReturn:
    """Replaces this process by a learner's server on a hub. Its variables say what it opens.

    arguments: further arguments for JupyterHub's server.
    """
    words = [sys.executable, *SAFE, "-m", "jupyterhub.singleuser", *arguments]
    os.execve(words[0], words, environment(os.environ))


def command(notebook: Path, root: Path, arguments: Sequence[str] = ()) -> list[str]:
    """The command that `start` runs."""
    # `-m jupyter lab` would look for a program, which may belong to another Python.
    words = [sys.executable, *SAFE, "-m", "jupyterlab", str(notebook.resolve())]
    usual = [
        (f"--ServerApp.root_dir={root.resolve()}", "--notebook-dir"),
        # Among the many lines of Jupyter's log is an address that opens no lesson.
        ("--log-level=WARN", "--ServerApp.log_level", "--Application.log_level", "--debug"),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        usual.append(("--allow-root", "--ServerApp.allow_root"))
    if not can_open_browser(os.environ):
        usual.append(("--no-browser", "--ServerApp.open_browser", "--browser"))
    # a container's published port leads to another address than 127.0.0.1
    if _is_in_container():
        usual.append(("--ip=0.0.0.0", "--ServerApp.ip", "--sock"))
    for ours, *others in usual:
        names = (ours.partition("=")[0], *others)
        # A learner's own argument wins, because JupyterLab takes no argument twice.
        if not any(argument.partition("=")[0] in names for argument in arguments):
            words.append(ours)
    return [*words, *arguments]


def can_open_browser(given: Mapping[str, str]) -> bool:
    """Whether a browser window can be opened.

    In a text terminal, a text browser would open.
    """
    screen = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    return sys.platform != "linux" or any(given.get(name) for name in screen)


def _is_in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def address(server) -> str:
    """The address that opens the server's first notebook in any browser."""
    host = "127.0.0.1" if server.ip in (*_ANYWHERE, "localhost") else server.ip
    path = Path(server.file_to_run).resolve().relative_to(Path(server.root_dir).resolve())
    token = server.identity_provider.token
    return (
        f"{'https' if server.certfile else 'http'}://{host}:{server.port}{server.base_url}"
        f"lab/tree/{quote(path.as_posix())}{f'?token={token}' if token else ''}"
    )


def _load_jupyter_server_extension(server) -> None:
    """Called by Jupyter's server. On a hub the server opens no file, and prints no address."""
    if server.file_to_run:
        # Otherwise Jupyter prints more addresses, and none of them opens a lesson.
        server.identity_provider.token_generated = False
        loop = server.io_loop
        # The port opens in the first turn of the event loop. So print the address in the
        # second turn.
        loop.add_callback(loop.add_callback, _say_where, server)


def _say_where(server) -> None:
    lines = ["", "JupyterLab is at this address:", "", f"    {address(server)}", ""]
    if connection := os.environ.get("SSH_CONNECTION", "").split():
        lines += [
            "In a browser on your own machine, after this command there:",
            f"    ssh -L {server.port}:127.0.0.1:{server.port} {getuser()}@{connection[2]}",
            "",
        ]
    print("\n".join([*lines, "Ctrl-C here ends JupyterLab."]), flush=True)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """`given`, with the course's settings and kernel after those that are already there."""
    ours = {"JUPYTER_CONFIG_PATH": CONFIG, "JUPYTER_PATH": DATA}
    found = {name: [*given.get(name, "").split(os.pathsep), str(ours[name])] for name in ours}
    return {**given, **{name: os.pathsep.join(filter(None, found[name])) for name in ours}}
