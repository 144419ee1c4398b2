"""What `make` installs, and what it says, with a stand-in for pip or uv and indexes here."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lessons_lib.paths import ROOT

# It replaces the environment's Python, and uv: it notes how it was called. It asks each
# index that it is given, as pip does. A shell starts it, because a first line cannot name a
# program in a folder that has a space in its name.
STAND_IN = f"""#!/bin/sh
''':'
exec "{sys.executable}" -IS "$0" "$@"
'''
import json, os, sys, time, urllib.request
words = sys.argv[1:]
here = os.environ["STAND_IN"]
if words[0] == "-c":
    print(os.environ["PREFIX"])
elif words[-2:] == ["config", "list"]:
    print(os.environ.get("PIP_SETTINGS", ""))
else:
    with open(here + "/calls", "a") as calls:
        print(json.dumps([os.path.basename(sys.argv[0]), *words]), file=calls)
    os.stat(words[words.index("--constraint") + 1])  # it is there
    if "--index-url" in words:
        index = words[words.index("--index-url") + 1]
        urllib.request.urlopen(index + "/torch/").read()
    print("Collecting matplotlib", flush=True)
    while os.path.exists(here + "/wait"):
        time.sleep(0.05)
    if os.environ.get("FAILS_WITH"):
        sys.exit(os.environ["FAILS_WITH"])
"""


class Index(BaseHTTPRequestHandler):
    """An index of packages, and a proxy behind which PyPI answers with no certificate."""

    def do_HEAD(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    do_GET = do_CONNECT = do_HEAD

    def log_message(self, *_):
        pass


@pytest.fixture
def index():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def address(server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def _places_without_uv() -> list[str]:
    places = os.environ["PATH"].split(os.pathsep)
    return [place for place in places if not Path(place, "uv").exists()]


class Clone:
    """A clone with an environment that is there already, so that no test has to make one."""

    def __init__(self, folder: Path, index):
        self.folder, self.index = folder, index
        shutil.copytree(ROOT / "lessons_lib", folder / "lessons_lib")
        for name in ("pyproject.toml", "constraints.txt", "Makefile"):
            shutil.copy(ROOT / name, folder)
        self.commands = folder / "commands"
        self.commands.mkdir()
        self.put(folder / ".venv/bin/python", STAND_IN)
        self.has_pip("26.3")
        self.has_card(False)
        own = ("PIP_", "UV_", "MAKE")  # of the person who runs the tests
        kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        self.environment = kept | {
            "STAND_IN": str(folder),
            "PREFIX": str(folder / ".venv"),
            "PATH": os.pathsep.join([str(self.commands), *_places_without_uv()]),
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "PYTORCH_CPU_INDEX": f"{address(index)}/cpu",
            "https_proxy": address(index),
            "no_proxy": "127.0.0.1",
        }

    def put(self, path: Path, text: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def has_pip(self, version: str):
        packages = self.folder / ".venv/lib/python3.11/site-packages"
        shutil.rmtree(packages, ignore_errors=True)
        (packages / f"pip-{version}.dist-info").mkdir(parents=True)

    def has_uv(self):
        self.put(self.commands / "uv", STAND_IN)

    def has_card(self, has: bool):
        text = "#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n" if has else "#!/bin/sh\nexit 9\n"
        self.put(self.commands / "nvidia-smi", text)

    def make(self, *words: str, **environment: str):
        return subprocess.run(
            ["make", f"PYTHON={sys.executable}", *words],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
        )

    def install(self, *words: str, **environment: str):
        """What `make lab` does first, without make, which takes longer."""
        return subprocess.run(
            [sys.executable, "-IS", "lessons_lib/start/install.py", *words],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
        )

    @property
    def calls(self) -> list[list[str]]:
        noted = self.folder / "calls"
        return list(map(json.loads, noted.read_text().splitlines())) if noted.exists() else []


@pytest.fixture
def clone(tmp_path, index):
    return Clone(tmp_path / "a clone", index)


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["optional-dependencies"]


def test_the_lessons_get_no_extra(clone):
    run = clone.install()
    assert run.returncode == 0, run.stderr
    assert clone.calls[-1][-2:] == ["--editable", str(clone.folder)]
    named = {word for call in clone.calls for word in call}
    assert not named & set(sum(extras().values(), []))


@pytest.mark.parametrize("words", [["test"], ["lint"], ["grade", "SUBMISSIONS=."]])
def test_a_command_brings_what_it_needs_when_it_is_called(clone, words):
    for _ in range(2):  # the second time, all is there
        clone.make(*words)
    needed = extras()[words[0]]
    assert [call[-len(needed) :] for call in clone.calls].count(needed) == 1
    assert sum("--editable" in call for call in clone.calls) == 1


def test_without_a_card_pytorch_comes_from_its_index_for_the_cpu(clone, index):
    run = clone.install()
    assert run.returncode == 0, run.stderr
    assert "/cpu/torch/" in index.asked
    torch, rest = clone.calls
    assert torch[-4:] == ["--no-deps", "--index-url", f"{address(index)}/cpu", "torch"]
    assert "--index-url" not in rest
    for call in clone.calls:
        # a name without a space, which uv would take for the end of it, whatever the folder's
        assert call[call.index("--constraint") + 1] == "constraints.txt"


def test_with_a_card_it_comes_from_pypi(clone, index):
    clone.has_card(True)
    assert clone.install().returncode == 0
    assert [call[-2] for call in clone.calls] == ["--editable"]
    assert index.asked == ["pypi.org:443"]


@pytest.mark.parametrize(
    "settings",
    [
        "global.extra-index-url='file:///disk/simple'",
        "user.index-url='file:///disk/simple'",
        ":env:.find-links='/wheels'",
        "install.no-index='1'",
    ],
)
def test_an_index_that_pip_was_given_counts(clone, index, settings):
    clone.has_uv()  # it would not know of that index
    assert clone.install(PIP_SETTINGS=settings).returncode == 0
    assert [(call[0], call[-2]) for call in clone.calls] == [("python", "--editable")]
    assert not [path for path in index.asked if path.startswith("/cpu")]


def test_arguments_for_pip_count(clone, index):
    pip_arguments = f"--extra-index-url {address(index)}/mine"
    run = clone.make(".venv/ready", f"PIP_ARGS={pip_arguments}")
    assert run.returncode == 0, run.stderr
    ((*words, _, _),) = clone.calls
    assert words[-2:] == pip_arguments.split()


def test_uv_does_it_where_it_is_there(clone, index):
    clone.has_uv()
    assert clone.install().returncode == 0
    assert [call[:3] for call in clone.calls] == 2 * [["uv", "pip", "install"]]
    python = str(clone.folder / ".venv/bin/python")
    assert all(call[call.index("--python") + 1] == python for call in clone.calls)
    assert "/cpu/torch/" in index.asked


@pytest.mark.parametrize("how", ["variable", "file"])
def test_an_index_that_uv_was_given_counts(clone, index, how):
    clone.has_uv()
    own = f"{address(index)}/mine"
    clone.put(clone.folder / "uv/uv.toml", f'index-url = "{own}"' if how == "file" else "")
    given = {"UV_DEFAULT_INDEX": own} if how == "variable" else {}
    assert clone.install(**given).returncode == 0
    assert [(call[0], call[-2]) for call in clone.calls] == [("uv", "--editable")]


def test_an_index_that_cannot_be_reached_is_said_with_the_remedy(clone):
    nobody = "http://127.0.0.1:9"
    run = clone.install(https_proxy=nobody)
    assert run.returncode != 0 and clone.calls == []
    assert "https://pypi.org/simple/ cannot be reached" in run.stderr
    assert "https_proxy" in run.stderr and "PIP_INDEX_URL" in run.stderr
    run = clone.install(PIP_SETTINGS=f"global.index-url='{nobody}/simple'")
    assert f"{nobody}/simple cannot be reached" in run.stderr


def test_without_the_index_for_the_cpu_pytorch_is_pypis_and_that_is_said(clone):
    run = clone.install(PYTORCH_CPU_INDEX="http://127.0.0.1:9/cpu")
    assert run.returncode == 0, run.stderr
    assert "PyTorch comes with CUDA, 2 GB more" in run.stdout
    assert "export PYTORCH_CPU_INDEX" in run.stdout
    assert [call[-2] for call in clone.calls] == ["--editable"]


def test_an_old_pip_brings_a_newer_one_and_does_it_itself_where_that_fails(clone):
    clone.has_pip("23.2.1")
    assert clone.install().returncode == 0
    assert clone.calls[0][-2:] == ["--upgrade", "pip"]
    # an old pip takes no other progress bar, and this one is still old
    assert not any("--progress-bar=raw" in call for call in clone.calls)
    assert clone.calls[-1][-2] == "--editable"


def test_what_fails_is_shown_and_the_next_call_tries_again(clone):
    ready, fault = clone.folder / ".venv/ready", "No space left on device"
    run = clone.make(".venv/ready", FAILS_WITH=fault, PIP_SETTINGS="a.no-index='1'")
    assert run.returncode != 0 and "No space left on device" in run.stderr
    log = re.search(r"All that was said is in (.*)", run.stderr)[1]
    assert "Collecting matplotlib" in Path(log).read_text()
    assert not ready.exists()
    assert clone.make(".venv/ready").returncode == 0


@pytest.mark.slow
def test_a_step_says_how_far_it_is_while_it_runs(clone):
    wait = clone.folder / "wait"
    wait.touch()
    words = [sys.executable, "-IS", "lessons_lib/start/install.py"]
    settings = clone.environment | {"PIP_SETTINGS": "global.no-index='1'"}
    with subprocess.Popen(
        words, cwd=clone.folder, env=settings, stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stdout:
            if re.fullmatch(r" +\d+ s  Collecting matplotlib\n", line):
                wait.unlink()
    assert run.returncode == 0 and not wait.exists()


def test_after_a_move_the_environment_is_made_anew_and_what_was_added_too(clone):
    clone.make("lint")
    moved = clone.make("-n", "lint", PREFIX="/where/it/was")
    assert "install.py -- " in moved.stdout and "install.py lint" in moved.stdout
