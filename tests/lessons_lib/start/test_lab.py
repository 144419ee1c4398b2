"""JupyterLab as `make lab` starts it: at the course's root, without notices from outside."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from contextlib import suppress
from getpass import getuser
from pathlib import Path

import pytest

from lessons_lib.paths import MY_NOTEBOOKS, NOTEBOOKS, ROOT
from lessons_lib.start import jupyterlab

FIRST = NOTEBOOKS / "00_start_here.ipynb"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What a JupyterLab says as it starts, for the first time and over SSH."""
    home = tmp_path_factory.mktemp("home")
    own = MY_NOTEBOOKS / f"of-tests-{os.getpid()}"  # in the clone, as `make lab` has it
    folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = os.environ | {f"JUPYTER_{name}": str(home / name) for name in folders}
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    environment["SSH_CONNECTION"] = "192.0.2.1 50000 192.0.2.2 22"
    for screen in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"):
        environment.pop(screen, None)
    server = subprocess.Popen(
        [sys.executable, "-m", "lessons_lib.start", "lab", own, "--", "--port=0"],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in server.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            break
    yield "".join(lines)
    server.terminate()
    server.communicate()
    shutil.rmtree(own)
    with suppress(OSError):  # somebody's own copies are in it
        MY_NOTEBOOKS.rmdir()


@pytest.fixture(scope="module")
def ask(printed):
    """Asks this JupyterLab; gives JSON."""
    address = urllib.parse.urlsplit(addresses(printed)[0])

    def ask(path):
        url = address._replace(path=f"/{path}").geturl()
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)

    return ask


def addresses(text: str) -> list[str]:
    return re.findall(r"\w+://\S+", text)


def test_one_address_is_printed_and_it_opens_lesson_00(printed):
    (address,) = addresses(printed)
    with urllib.request.urlopen(address, timeout=60) as answer:  # with its token
        page = answer.read().decode()
    relative = f"{MY_NOTEBOOKS.name}/of-tests-{os.getpid()}"
    settings = re.search(
        r'id="jupyter-config-data" type="application/json">(.*?)<', page, re.S
    )
    assert json.loads(settings[1])["treePath"] == f"{relative}/00_start_here.ipynb"
    port = urllib.parse.urlsplit(address).port
    assert f"ssh -L {port}:127.0.0.1:{port} {getuser()}@192.0.2.2" in printed


@pytest.mark.parametrize("name", ["kernels/vector_add.cu", "solutions", "notebooks"])
def test_what_the_text_names_can_be_opened(ask, name):
    assert ask(f"api/contents/{name}")["path"] == name


def test_jupyterlab_brings_no_news_and_does_not_ask_for_them(ask):
    plugin = urllib.parse.quote("@jupyterlab/apputils-extension:notification")
    fields = ask(f"lab/api/settings/{plugin}")["schema"]["properties"]
    assert fields["fetchNews"]["default"] == "false"
    assert fields["checkForUpdates"]["default"] is False


@pytest.mark.parametrize(
    "own, ours",
    [
        ("--ServerApp.root_dir=/here", "--ServerApp.root_dir"),
        ("--notebook-dir=/here", "--ServerApp.root_dir"),
        ("--log-level=INFO", "--log-level"),
        ("--debug", "--log-level"),
        ("--allow-root", "--allow-root"),
        ("--no-browser", "--no-browser"),
        ("--browser=firefox", "--no-browser"),
        ("--ip=127.0.0.1", "--ip"),
    ],
)
def test_what_a_learner_says_to_jupyterlab_counts_and_ours_is_not_said_too(own, ours):
    words = jupyterlab.command(FIRST, ROOT, [own])
    assert str(FIRST) in words and words[-1] == own
    assert not [word for word in words[:-1] if word.partition("=")[0] == ours]
    if "root_dir" in ours:
        assert f"--ServerApp.root_dir={ROOT}" in jupyterlab.command(FIRST, ROOT)


COMMAND = """
import sys
from pathlib import Path
from lessons_lib.start.jupyterlab import command
sys.exit(sys.argv[1] in command(Path("n.ipynb"), Path(".")))
"""


def is_said(option: str, *bubblewrap) -> bool:
    """Whether JupyterLab is started with this option in that sandbox."""
    words = ["bwrap", *bubblewrap, sys.executable, "-c", COMMAND, option]
    return subprocess.run(words, cwd=ROOT).returncode == 1


@pytest.mark.parametrize("user", [0, 1000])
def test_root_may_open_it_too(user):
    sandbox = ["--dev-bind", "/", "/", "--unshare-user", "--uid", str(user)]
    assert is_said("--allow-root", *sandbox) == (user == 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
def test_without_a_screen_no_browser_is_looked_for():
    assert not jupyterlab.can_open_browser({"SSH_CONNECTION": "a 1 b 2"})
    assert jupyterlab.can_open_browser({"DISPLAY": ":0"})
    assert jupyterlab.can_open_browser({"BROWSER": "/opt/open"})  # an editor elsewhere


@pytest.mark.parametrize("mark", ["/run/.containerenv", "/.nothing"])
def test_in_a_container_a_published_port_reaches_it(mark):
    """Nothing but this file tells podman's containers from other machines."""
    root = ["--tmpfs", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
    for path in Path("/").iterdir():
        if path.is_dir() and path.name not in ("dev", "proc", "run"):
            root += ["--ro-bind", str(path), str(path)]
    is_in_a_container = mark == "/run/.containerenv"
    assert is_said("--ip=0.0.0.0", *root, "--ro-bind", FIRST, mark) == is_in_a_container


def test_a_learners_own_folders_of_settings_come_before_ours():
    ours = {
        "JUPYTER_CONFIG_PATH": str(jupyterlab.CONFIG),
        "JUPYTER_PATH": str(jupyterlab.DATA),
    }
    assert jupyterlab.environment({}) == ours
    mine = {"JUPYTER_CONFIG_PATH": "/mine", "HOME": "/home/me"}
    both = f"/mine{os.pathsep}{jupyterlab.CONFIG}"
    assert jupyterlab.environment(mine) == mine | ours | {"JUPYTER_CONFIG_PATH": both}
