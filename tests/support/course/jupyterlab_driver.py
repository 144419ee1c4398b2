"""A real JupyterLab in headless Chromium, for the browser tests and the README's pictures."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from nbformat.v4 import new_code_cell, new_notebook

from lessons_lib.paths import NOTEBOOKS

PATIENCE = 900  # seconds; far more than anything here takes, on a busy machine too
LAPTOP = {"width": 1366, "height": 850}
# Keeps Chromium from asking hosts outside, and lets it run as root in a container.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    # Without windowing every cell is in the page, so that it can be found and seen.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


def find_chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


@contextmanager
def jupyterlab(folder: Path, progress: Path | None = None, arguments: tuple[str, ...] = ()):
    """Serves a copy of notebooks/ from `folder`; gives (port, token).

    arguments: further ones, for JupyterLab.
    """
    served = folder / "notebooks"
    shutil.copytree(NOTEBOOKS, served)
    config = folder / "config" / "labconfig"
    config.mkdir(parents=True)
    (config / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    token, port = secrets.token_hex(16), free_port()
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "LESSONS_PROGRESS_DIR": str(progress or folder / "progress"),
    }
    with open(folder / "jupyter.log", "w") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyter",
                "lab",
                "--no-browser",
                "--allow-root",
                f"--port={port}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={token}",
                f"--ServerApp.root_dir={served}",
                "--LabApp.expose_app_in_browser=True",
                *arguments,
            ],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_up(server, port, token, folder / "jupyter.log")
            yield port, token
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()


@contextmanager
def chromium():
    """A headless Chromium, for pages that are apart from each other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser, size=LAPTOP):
    """A page that remembers its console errors in `page.console_errors`."""
    page = browser.new_page(viewport=size)
    page.set_default_timeout(PATIENCE * 1000)
    page.console_errors = []
    page.on("console", lambda message: page.console_errors.extend(_errors(message)))
    page.on("pageerror", lambda error: page.console_errors.append(str(error)))
    yield page
    page.close()


@contextmanager
def browser_page(size=LAPTOP):
    """The only page of a Chromium."""
    with chromium() as browser, page_of(browser, size) as page:
        yield page


def faults(page, part: str | None = None) -> list[str]:
    """What axe finds in a page, or in a part of it."""
    from axe_playwright_python.sync_playwright import Axe

    return [each["id"] for each in Axe().run(page, part).response["violations"]]


def _errors(message) -> list[str]:
    """The text of a console's error. JupyterLab puts a picture's `attachment:` into the page
    before it puts its data there, and Chromium says that it cannot load that; this is none.
    """
    loads_attachment = message.location.get("url", "").startswith("attachment:")
    return [message.text] if message.type == "error" and not loads_attachment else []


class Notebook:
    """One notebook, open in JupyterLab, driven as a learner would."""

    def __init__(self, page, port: int, token: str, name: str):
        self._open(page, f"http://127.0.0.1:{port}/lab/tree/{name}?token={token}&reset")

    @classmethod
    def at(cls, page, address: str):
        """The notebook at an address, for example of a hub."""
        notebook = cls.__new__(cls)
        notebook._open(page, address)
        return notebook

    def _open(self, page, address: str):
        self.page = page
        page.goto(address)
        page.wait_for_function("() => window.jupyterapp")
        page.evaluate("() => window.jupyterapp.restored")
        page.wait_for_function(
            "() => { const w = jupyterapp.shell.currentWidget; "
            "return w && w.context && w.context.isReady && w.sessionContext.session && "
            "w.sessionContext.session.kernel && w.sessionContext.session.kernel.status === "
            "'idle'; }"
        )

    def cells(self) -> list[dict]:
        return self.page.evaluate(
            "() => jupyterapp.shell.currentWidget.content.model.toJSON().cells"
        )

    def index(self, cell_id: str) -> int:
        return next(index for index, cell in enumerate(self.cells()) if cell["id"] == cell_id)

    def run_all(self) -> bool:
        """Runs every cell. False if one failed, because JupyterLab stops there."""
        return self.page.evaluate(
            "() => jupyterapp.commands.execute('notebook:run-all-cells')"
        )

    def run_cell(self, cell_id: str) -> dict:
        """Runs one cell and gives it with its outputs."""
        self.select(cell_id)
        self.page.evaluate("() => jupyterapp.commands.execute('notebook:run-cell')")
        return self.cells()[self.index(cell_id)]

    def show(self, *sources: str):
        """Replaces the notebook's cells with these cells of code. Their ids are "0", "1", …"""
        self.page.evaluate(
            "content => jupyterapp.shell.currentWidget.content.model.fromJSON(content)",
            notebook_of(*sources),
        )
        self.page.wait_for_function(
            "count => document.querySelectorAll('.jp-CodeCell .cm-content').length === count",
            arg=len(sources),
        )

    def type_into(self, cell_id: str, text: str):
        """Replaces a cell's source by keyboard."""
        self.select(cell_id)
        editor = self.cell(cell_id).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(text)

    def cell(self, cell_id: str):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self.index(cell_id))

    def select(self, cell_id: str):
        self.page.evaluate(
            "index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }",
            self.index(cell_id),
        )

    def change_theme(self, theme: str):
        """theme: "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
        )
        self.page.wait_for_function(
            "theme => document.body.dataset.jpThemeName === theme", arg=theme
        )
        # JupyterLab covers the page meanwhile, and fails if that is asked for twice at once
        self.page.wait_for_function("() => !document.getElementById('jupyterlab-splash')")

    def close_side_bar(self):
        """Hides the file browser, so that the notebook has the whole width."""
        self.page.evaluate(
            "() => { if (!jupyterapp.shell.leftCollapsed) "
            "jupyterapp.commands.execute('application:toggle-left-area'); }"
        )


def notebook_of(*sources: str) -> dict:
    """A notebook with these cells of code."""
    python = {"name": "python", "codemirror_mode": {"name": "ipython"}}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_code_cell(source, id=f"{number}") for number, source in enumerate(sources)]
    about = {"kernelspec": kernel, "language_info": python}
    return new_notebook(cells=cells, metadata=about)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait_until_up(server, port, token, log: Path):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
        with suppress(OSError):
            urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/status?token={token}", timeout=60
            ).close()
            return
        time.sleep(0.25)
    raise RuntimeError(
        f"JupyterLab did not answer within {PATIENCE} s:\n{log.read_text()[-2000:]}"
    )
