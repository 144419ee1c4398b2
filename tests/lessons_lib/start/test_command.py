"""The command `paged-attention-course`: what a command line copies, opens and says. JupyterLab
and a hub's server are stand-ins that tell what they were started with.
"""

import json
import os
import re
import sys

import pytest

from lessons_lib.paths import NOTEBOOKS, ROOT
from lessons_lib.start import __main__ as command
from lessons_lib.start import jupyterlab
from made_packages import Packages

FIRST = "00_start_here.ipynb"
TELLS = """\
import json, os, sys
told = {"program": sys.executable, "words": sys.argv[1:], "is_safe": sys.flags.safe_path}
print("STARTED", json.dumps(told | {"JUPYTER_PATH": os.environ["JUPYTER_PATH"]}))
"""


@pytest.fixture
def packages(tmp_path):
    """A Python with a JupyterLab, and without a JupyterHub."""
    made = Packages(tmp_path / "packages")
    made.module("jupyterlab.__main__", TELLS)
    return made


def started(run) -> dict | None:
    """What the server was started with; None if none was."""
    found = re.search(r"^STARTED (.*)$", run.stdout, re.MULTILINE)
    return found and json.loads(found[1])


def call(packages, folder, *words, **variables):
    return packages.run("-m", "lessons_lib.start", *words, cwd=folder, **variables)


def test_the_lessons_are_copied_and_jupyterlab_opens_the_first_with_these_arguments(
    packages, tmp_path
):
    """As this Python's own: `jupyter lab` looks for a program, which may be another's."""
    words = ["lab", "mine", "--", "--port", "8890", "--", "b"]
    run = call(packages, tmp_path, *words, JUPYTER_PATH="/own")
    server, mine = started(run), tmp_path / "mine"
    assert (server["program"], server["is_safe"]) == (sys.executable, True)
    assert server["words"][:2] == [f"{mine / FIRST}", f"--ServerApp.root_dir={mine}"]
    assert server["words"][-4:] == ["--port", "8890", "--", "b"]
    assert server["JUPYTER_PATH"] == f"/own{os.pathsep}{jupyterlab.DATA}"
    assert (mine / FIRST).read_bytes() == (NOTEBOOKS / FIRST).read_bytes()
    assert run.stdout.startswith(f"The lessons are in {mine}.\n")


def test_lessons_may_only_be_copied(packages, tmp_path):
    run = call(packages, tmp_path, "lab", "mine", "--only-copy")
    assert (run.returncode, started(run)) == (0, None)
    assert (tmp_path / "mine" / FIRST).exists()


def test_a_hubs_server_has_the_courses_kernel_and_is_safe_from_files_in_a_home(
    packages, tmp_path
):
    packages.module("jupyterhub.singleuser", TELLS)
    run = call(packages, tmp_path, "hub", "lessons", "--allow-root", "--port=1")
    server = started(run)
    assert server["words"] == ["--allow-root", "--port=1"] and server["is_safe"]
    assert server["JUPYTER_PATH"] == str(jupyterlab.DATA)
    assert run.stdout.startswith(f"The lessons are in {tmp_path / 'lessons'}.\n")
    assert (tmp_path / "lessons" / FIRST).exists()


@pytest.mark.skipif(jupyterlab.has_hub(), reason="this Python has JupyterHub")
def test_without_jupyterhub_the_log_says_where_it_belongs(packages, tmp_path):
    run = call(packages, tmp_path, "hub", "lessons")
    assert run.returncode == 1 and not (tmp_path / "lessons").exists()
    assert f"{sys.executable} -m pip install jupyterhub" in run.stderr


@pytest.mark.parametrize("place", ["a file", "/proc/nowhere"])
def test_what_cannot_be_copied_is_one_sentence_and_is_not_opened_except_on_a_hub(
    packages, tmp_path, place
):
    """A full home has to be emptied from somewhere."""
    packages.module("jupyterhub.singleuser", TELLS)
    (tmp_path / "a file").write_text("mine")
    run = call(packages, tmp_path, "lab", place)
    assert (run.returncode, run.stderr.count("\n"), started(run)) == (1, 1, None)
    run = call(packages, tmp_path, "hub", place)
    assert run.stderr.count("\n") == 1 and started(run)
    assert (tmp_path / "a file").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["lab", "a", "--port", "--quiet", "--", "b"],
            "no argument --port here. JupyterLab's come after --: paged-attention-course lab "
            "-- --port --quiet\n",
        ),
        (["lab", "--port", "8890"], "paged-attention-course lab -- --port 8890\n"),
        (["doctor", "--port", "--quiet"], "no argument --port here.\n"),
        (["--", "lab"], "the following arguments are required: COMMAND\n"),
        (["hub"], "the following arguments are required: FOLDER\n"),
        (["sing"], "argument COMMAND: invalid choice: 'sing'"),
    ],
)
def test_a_command_line_with_a_fault_says_which(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        command.main(words)
    assert left.value.code == 2 and said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_the_command_alone_says_what_it_can_do(capsys):
    assert command.main([]) == 2
    shown = capsys.readouterr().out
    for words in (
        "lab ",
        "hub ",
        "doctor ",
        "grade ",
        "copy the lessons into your own folder",
    ):
        assert words in shown


def test_the_lines_for_teachers_are_those_that_the_hubs_test_tries():
    page = (ROOT / "TEACHING.md").read_text()
    (lines,) = re.findall(r"```python\n(c\..*?)```", page, re.DOTALL)
    assert (ROOT / "tests/support/machine/hub_config.py").read_text().endswith(lines)
