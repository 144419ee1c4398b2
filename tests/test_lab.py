"""JupyterLab as `make lab` starts it: at the course's root, without notices from outside."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from lessons_command import jupyterlab
from lessons_lib.paths import NOTEBOOKS, ROOT

FIRST = NOTEBOOKS / "00_start_here.ipynb"
PATIENCE = 900  # seconds; far more than a start takes


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks a JupyterLab of somebody who has never used one; gives JSON."""
    home, token = tmp_path_factory.mktemp("home"), secrets.token_hex(16)
    own = ROOT / ".build" / f"my-notebooks-{os.getpid()}"  # in the clone, as `make lab` has it
    folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = os.environ | {f"JUPYTER_{name}": str(home / name) for name in folders}
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    options = ["--no-browser", "--allow-root", f"--IdentityProvider.token={token}"]
    server = subprocess.Popen(
        [sys.executable, "-m", "lessons_command", "lab", own, "--", *options, "--port=0"],
        env=environment,
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(path):
        address = f"{_address(home / 'RUNTIME_DIR', server)}{path}?token={token}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return json.load(answer)

    yield ask
    server.terminate()
    server.wait()
    shutil.rmtree(own)


def _address(folder: Path, server) -> str:
    for _ in range(10 * PATIENCE):
        if server.poll() is not None:
            break
        with suppress(OSError, ValueError, StopIteration):
            address = json.loads(next(folder.glob("jpserver-*.json")).read_text())["url"]
            urllib.request.urlopen(f"{address}api", timeout=60).close()
            return address
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start: {server.poll()}")


@pytest.mark.parametrize("name", ["kernels/vector_add.cu", "solutions", "notebooks"])
def test_what_the_text_names_can_be_opened(ask, name):
    assert ask(f"api/contents/{name}")["path"] == name


def test_jupyterlab_brings_no_news_and_does_not_ask_for_them(ask):
    plugin = urllib.parse.quote("@jupyterlab/apputils-extension:notification")
    fields = ask(f"lab/api/settings/{plugin}")["schema"]["properties"]
    assert fields["fetchNews"]["default"] == "false"
    assert fields["checkForUpdates"]["default"] is False


def test_a_learner_says_where_jupyterlab_is_opened():
    usual = jupyterlab.command(FIRST, ROOT, ["--no-browser"])
    assert usual[3:] == [str(FIRST), f"--ServerApp.root_dir={ROOT}", "--no-browser"]
    for own in ("--ServerApp.root_dir=/here", "--notebook-dir=/here"):
        assert jupyterlab.command(FIRST, ROOT, [own])[3:] == [str(FIRST), own]


def test_a_learners_own_folders_of_settings_come_before_ours():
    ours = {
        "JUPYTER_CONFIG_PATH": str(jupyterlab.CONFIG),
        "JUPYTER_PATH": str(jupyterlab.DATA),
    }
    assert jupyterlab.environment({}) == ours
    mine = {"JUPYTER_CONFIG_PATH": "/mine", "HOME": "/home/me"}
    both = f"/mine{os.pathsep}{jupyterlab.CONFIG}"
    assert jupyterlab.environment(mine) == mine | ours | {"JUPYTER_CONFIG_PATH": both}
