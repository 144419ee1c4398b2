"""What several folders of the lessons' library try their parts in."""

import json

import pytest


@pytest.fixture
def displayed():
    """Within a kernel of Jupyter: what is displayed there, each as IPython publishes it."""
    import ipykernel  # noqa: F401  # as each kernel does
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.kernel, shell.display_pub = "a kernel", CapturingDisplayPublisher()
    yield shell.display_pub.outputs
    InteractiveShell.clear_instance()


@pytest.fixture
def make_lesson(monkeypatch, tmp_path):
    """Makes the one lesson that there is, of these cells, and gives its code cells.

    A text that begins with # is no code, but Markdown.
    """
    from lessons_lib.guide import restart

    monkeypatch.setattr(restart, "NOTEBOOKS", tmp_path)
    restart.cells_of.cache_clear()

    def make(*texts: str, number: str = "01") -> tuple[restart.CodeCell, ...]:
        kinds = ("markdown" if text[:1] == "#" else "code" for text in texts)
        cells = [
            {"cell_type": kind, "source": [text]}
            for kind, text in zip(kinds, texts, strict=True)
        ]
        text = json.dumps({"cells": cells}, ensure_ascii=False)
        (tmp_path / f"{number}_topic.ipynb").write_text(text, encoding="utf-8")
        restart.cells_of.cache_clear()
        return restart.cells_of(number)

    yield make
    restart.cells_of.cache_clear()


@pytest.fixture
def learner(tmp_path, monkeypatch):
    """The folder of what is remembered of a learner who has not begun."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path / "progress"))
    (tmp_path / "progress").mkdir()
    return tmp_path / "progress"


@pytest.fixture
def run_cells(monkeypatch, capsys):
    """Runs cells of lesson 01 as a kernel does, and gives what the last one shows."""
    from IPython.core.interactiveshell import InteractiveShell

    from lessons_lib.start import kernel

    monkeypatch.setenv("JPY_SESSION_NAME", "01_block_manager.ipynb")
    shell = InteractiveShell()
    kernel.load_ipython_extension(shell)

    def run(*texts: str) -> str:
        for text in texts:
            shell.user_ns["In"].append(text)
            capsys.readouterr()
            shell.run_cell(text)
        return capsys.readouterr().out

    return run
