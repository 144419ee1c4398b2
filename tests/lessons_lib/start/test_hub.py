"""A class's hub: JupyterHub, one installed course, two learners at once in real browsers."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from from_wheel import PIP, installed  # noqa: F401, a fixture
from jupyterlab_driver import PATIENCE, Notebook, browser_page, free_port
from lessons_lib.paths import ROOT
from tools.notebooks.build import select

pytestmark = [
    pytest.mark.tool("hub"),
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which("npm"), reason="JupyterHub's proxy comes from npm"),
]
PROXY = "configurable-http-proxy"


@contextmanager
def hub(python: Path, folder: Path):
    """A running JupyterHub; gives its address and the folder of its learners' homes."""
    subprocess.run(["npm", "install", "--silent", "--prefix", folder, PROXY], check=True)
    port, own_port, proxy_port = free_port(), free_port(), free_port()
    homes = folder / "homes"
    homes.mkdir()
    path = f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "HUB_HOMES": str(homes),
        "HUB_PROXY": str(folder / "node_modules" / ".bin" / PROXY),
        "HUB_PORT": str(port),
        "HUB_OWN_PORT": str(own_port),
        "HUB_PROXY_PORT": str(proxy_port),
    }
    config = ROOT / "tests/support/machine/hub_config.py"
    with open(folder / "hub.log", "w") as log:
        server = subprocess.Popen(
            [python, "-m", "jupyterhub", "-f", config],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_up(server, f"http://127.0.0.1:{port}/hub/api", folder / "hub.log")
        yield f"http://127.0.0.1:{port}", homes
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(60)
        server.kill()


def _wait_until_up(server, address: str, log: Path):
    for _ in range(10 * PATIENCE):
        assert server.poll() is None, log.read_text()[-3000:]
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=10)
            return
        time.sleep(0.1)
    raise AssertionError(f"JupyterHub did not start:\n{log.read_text()[-3000:]}")


def a_forgotten_cell_is_named(notebook: Notebook, number: str) -> bool:
    """Whether the course's kernel is there: it explains errors before any cell has run."""
    outputs = notebook.run_cell(f"check-{number}")["outputs"]
    return "comes from a cell that has not run yet" in str(outputs)


def do_a_lesson(address: str, name: str, lesson: str, picture: Path) -> str:
    """Logs in, runs a lesson to its first stub, answers, and gives what the check says."""
    (source,) = select([lesson])
    stub = next(cell for cell in source.cells if cell.kind == "exercise")
    number = stub.exercise.replace(".", "-")
    with browser_page() as page:
        page.goto(f"{address}/hub/login")
        page.fill("input[name=username]", name)
        page.fill("input[name=password]", "any")
        page.click("[type=submit]")
        page.wait_for_url(f"**/user/{name}/lab/**")
        notebook = Notebook.at(
            page, f"{address}/user/{name}/lab/tree/lessons/{source.name}.ipynb?reset"
        )
        assert a_forgotten_cell_is_named(notebook, number)
        assert not notebook.run_all()
        # without our marks, or it would not count as the learner's
        answer = re.sub(r"\n *(//|#) (BEGIN|END) SOLUTION.*", "", stub.solution())
        notebook.type_into(f"exercise-{number}", answer)
        notebook.run_cell(f"exercise-{number}")
        outputs = notebook.run_cell(f"check-{number}")["outputs"]
        page.screenshot(path=picture)
        assert not page.get_by_text("official Jupyter news").count()  # our settings are there
    return "".join(str(output.get("data", output)) for output in outputs)


def test_two_learners_at_once_compile_and_pass_without_a_clash(installed, tmp_path):
    subprocess.run(
        [*PIP, "--python", installed / "bin" / "python", "install", "jupyterhub"], check=True
    )
    names = ("ada", "bob")
    with (
        hub(installed / "bin" / "python", tmp_path) as (address, homes),
        ThreadPoolExecutor(2) as pool,
    ):
        for lesson in ("06", "01"):
            tasks = [
                pool.submit(do_a_lesson, address, name, lesson, tmp_path / f"{name}.png")
                for name in names
            ]
            assert all(": passed" in task.result() for task in tasks)
        for name in names:  # each has their own progress, builds and answers
            progress = homes / name / ".local/share/paged-attention-course"
            assert [*progress.rglob("*1.1*")], sorted(progress.rglob("*"))
            assert any((homes / name / ".cache/paged-attention-course").iterdir())
