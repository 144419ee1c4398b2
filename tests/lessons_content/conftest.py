"""A browser for all tests of a file, and outputs of cells as a page in it."""

import contextlib

import pytest

from jupyterlab_driver import chromium, page_of

HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Outputs</title>
<style>@media(prefers-color-scheme:dark){body{background:#181818;color:#eee}}</style>"""


@pytest.fixture(scope="module")
def browser():
    """One for all tests of a file."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def shown(tmp_path, browser):
    """Opens outputs as one page, with these settings of the browser."""
    with contextlib.ExitStack() as pages:

        def open_page(*outputs, size=(1000, 800), **media):
            path = tmp_path / "page.html"
            path.write_text(f"{HEAD}<main><h1>Outputs</h1>{''.join(outputs)}</main>", "utf-8")
            page = pages.enter_context(page_of(browser, dict(zip(("width", "height"), size))))
            page.emulate_media(**media)
            page.goto(path.as_uri())
            assert page.console_errors == []
            return page

        yield open_page
