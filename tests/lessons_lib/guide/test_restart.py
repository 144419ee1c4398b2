"""After a restart, a missing name says which cells make it, in the course's own lessons."""

import os

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from lessons_lib import notebook_api
from lessons_lib.checks import progress
from lessons_lib.guide import restart
from lessons_lib.paths import NOTEBOOKS
from lessons_lib.start import jupyterlab


def test_an_answer_that_uses_a_name_of_a_cell_above_is_told_so(learner, capsys):
    """It is not remembered as a mistake."""
    scope = {}
    text = "def blocks_needed(num_tokens, block_size):\n    return [limit for _ in '1'][0]\n"
    exec(text, scope)
    with pytest.raises(notebook_api.CheckFailed):
        notebook_api.check("0.1", scope["blocks_needed"])
    out = capsys.readouterr().out
    assert "NameError: name 'limit' is not defined" in out
    assert "› limit comes from a cell that has not run yet, or not since a restart" in out
    assert "`limit = 512` below “What contiguous memory wastes”" in out
    assert progress.load() == {}
    scope["limit"] = 3
    with pytest.raises(notebook_api.CheckFailed):
        notebook_api.check("0.1", scope["blocks_needed"])
    assert "limit comes" not in capsys.readouterr().out and progress.load()["0.1"]["mistakes"]


@pytest.fixture(scope="module")
def kernel():
    """A kernel as JupyterLab starts it for a lesson, just restarted."""
    paths = jupyterlab.environment({})["JUPYTER_PATH"].split(os.pathsep)
    specs = KernelSpecManager(kernel_dirs=[f"{path}/kernels" for path in paths])
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
    name = str(next(NOTEBOOKS.glob("02_*.ipynb")))
    manager.start_kernel(env=os.environ | {"JPY_SESSION_NAME": name})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=900)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(kernel, text):
    found = []
    kernel.execute_interactive(text, timeout=900, output_hook=found.append)
    return [message["content"] for message in found if message["msg_type"] != "status"]


def test_a_kernel_that_has_run_nothing_of_the_course_says_what_to_run(kernel):
    running = 'check("2.1", count_pieces)'
    error, card = (each for each in outputs(kernel, running) if "code" not in each)
    assert (error["ename"], error["evalue"]) == ("NameError", "name 'check' is not defined")
    shown = card["data"]["text/plain"]
    assert shown.startswith("› check comes from a cell that has not run yet, or not")
    assert "`from lessons_lib import check, hint, " in shown
    assert restart.IN_THE_MENU in shown and "text/html" in card["data"]
