"""The course, installed from its wheel beside the packages that are here already."""

import fcntl
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from lessons_lib.paths import ROOT

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory, worker_id):
    """A Python that has the course from the wheel, and the other packages from this one."""
    folder = tmp_path_factory.getbasetemp() / "installed"
    if worker_id != "master":  # one for all processes
        folder = tmp_path_factory.getbasetemp().parent / "installed"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(folder)
            (folder / "ready").touch()
    return folder


def _install(folder: Path):
    wheels = folder.with_suffix(".wheels")
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", wheels, ROOT], check=True)
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    others = folder / "others"
    others.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "paged_attention_course" not in path.name and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    (packages / "others.pth").write_text(str(others))
    for part in ("etc/jupyter", "share/jupyter/lab", "share/jupyter/kernels"):
        if (source := Path(sys.prefix, part)).exists():  # what makes JupyterLab start
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).symlink_to(source)
    (wheel,) = wheels.glob("*.whl")
    target = [*PIP, "--python", folder / "bin" / "python", "install", "--no-deps", wheel]
    subprocess.run(target, check=True)
