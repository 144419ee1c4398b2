"""The committed JupyterLab extension: it is what its source gives, and it is installed."""

import filecmp
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from from_wheel import installed  # noqa: F401, a fixture
from lessons_lib.paths import ROOT

SOURCE = ROOT / "tools" / "colour"
COMMITTED = ROOT / "lessons_lib" / "start" / "labextension"
INSTALLED = "share/jupyter/labextensions/paged-attention-course-colour"
NEEDED = (20, 19)


def node_version() -> tuple[int, ...]:
    """The version of Node.js that is installed; () if there is none, or no npm."""
    if not shutil.which("node") or not shutil.which("npm"):
        return ()
    words = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return tuple(int(number) for number in words.strip().lstrip("v").split("."))


def files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )


def differences(one: Path, other: Path) -> list[str]:
    """The files that are not the same in both folders, or are in one only."""
    names = {*files(one), *files(other)}
    same, _, _ = filecmp.cmpfiles(one, other, names, shallow=False)
    return sorted(names.difference(same))


def test_jupyterlab_finds_the_extension_that_is_committed():
    """Where this fails: `make lab` installs it again."""
    folder = Path(sys.prefix) / INSTALLED
    assert [name for name in differences(COMMITTED, folder) if name != "install.json"] == []


def test_what_it_loads_is_there_and_its_version_is_the_source_s():
    built = json.loads((COMMITTED / "package.json").read_text())
    assert (COMMITTED / built["jupyterlab"].pop("_build")["load"]).is_file()
    assert built == json.loads((SOURCE / "package.json").read_text())


def test_what_is_bundled_has_its_licence():
    listed = json.loads((COMMITTED / "static" / "third-party-licenses.json").read_text())
    licences = {package["name"]: package["extractedText"] for package in listed["packages"]}
    assert licences.keys() >= {"@codemirror/lang-cpp", "@lezer/cpp", "@lezer/lr"}
    assert all("Permission is hereby granted" in text for text in licences.values())


@pytest.mark.slow
@pytest.mark.skipif(
    node_version() < NEEDED,
    reason="building the extension takes Node.js 20.19 or newer, with npm",
)
def test_the_committed_build_is_what_the_source_gives(tmp_path):
    """In another folder than `python -m tools.colour`, which must not matter."""
    copy = tmp_path / "copy"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("labextension"))
    for command in ("npm ci --ignore-scripts --no-audit --no-fund", "npm run build"):
        run = subprocess.run(command.split(), cwd=copy, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
    assert differences(COMMITTED, copy / "labextension") == [], "run `python -m tools.colour`"


@pytest.mark.slow
def test_the_wheel_brings_it(installed):
    assert differences(COMMITTED, installed / INSTALLED) == ["install.json"]
    assert not [*installed.glob("lib/*/site-packages/paged_*/**/node_modules")]
