"""The parts of the command `paged-attention-course`, without JupyterLab and without a hub."""

import io
import os
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from lessons_command import __main__ as command
from lessons_command import copies, doctor, jupyterlab, kernel, lab
from lessons_grading import command as grading
from lessons_guide import KINDS, misspelt, restart
from lessons_lib import whole


class Left(BaseException):
    """The process would be another program from here on."""


@pytest.fixture
def called(monkeypatch):
    """What a command line calls. Each has its own exit status."""
    called = []

    def note(module, name, status):
        def stand_in(*words, **more):
            called.append((name, *words, *more.items()))
            return status

        monkeypatch.setattr(module, name, stand_in)

    note(lab, "open_lessons", 11)
    note(lab, "open_on_hub", 12)
    monkeypatch.setattr(doctor, "main", lambda: called.append(("doctor",)) or 13)
    monkeypatch.setattr(grading, "main", lambda words: called.append(("grade", words)) or 14)
    return called


COMMANDS = [
    (["lab"], 11, ("open_lessons", None, [], ("only_copy", False))),
    (["lab", "a"], 11, ("open_lessons", Path("a"), [], ("only_copy", False))),
    (["lab", "a", "--only-copy"], 11, ("open_lessons", Path("a"), [], ("only_copy", True))),
    (
        ["lab", "a", "--", "--port", "1", "--", "b"],
        11,
        ("open_lessons", Path("a"), ["--port", "1", "--", "b"], ("only_copy", False)),
    ),
    (["hub", "a"], 12, ("open_on_hub", Path("a"), [])),
    (["hub", "a", "--port=1", "b"], 12, ("open_on_hub", Path("a"), ["--port=1", "b"])),
    (["doctor"], 13, ("doctor",)),
    (["grade"], 14, ("grade", [])),
    (["grade", "--help", "a"], 14, ("grade", ["--help", "a"])),
]


@pytest.mark.parametrize("words, status, call", COMMANDS)
def test_a_command_line_calls_one_thing(called, words, status, call):
    assert command.main(words) == status and called == [call]


def test_without_words_those_of_the_program_count(called, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["the program", "lab", "a", "--only-copy"])
    assert command.main() == 11
    assert called == [("open_lessons", Path("a"), [], ("only_copy", True))]


FAULTS = {
    "an argument of JupyterLab's": (
        ["lab", "a", "--port", "--quiet", "--", "b"],
        "no argument --port here. JupyterLab's come after --: paged-attention-course lab -- "
        "--port --quiet\n",
    ),
    "an argument of nothing": (["doctor", "--port", "--quiet"], "no argument --port here.\n"),
    "no command": (["--", "lab"], "the following arguments are required: COMMAND\n"),
    "no folder": (["hub"], "the following arguments are required: FOLDER\n"),
    "another command": (["sing"], "argument COMMAND: invalid choice: 'sing'"),
}


@pytest.mark.parametrize("words, said", FAULTS.values(), ids=FAULTS)
def test_a_command_line_with_a_fault_says_which(called, capsys, words, said):
    with pytest.raises(SystemExit) as left:
        command.main(words)
    assert left.value.code == 2 and not called
    assert said in capsys.readouterr().err


HELP = {
    "all": (
        ["--help"],
        "usage: paged-attention-course [-h] COMMAND ... "
        "PagedAttention, built from scratch. "
        "positional arguments: COMMAND "
        "lab copy the lessons into your own folder, and open JupyterLab there "
        "hub as lab, for the server that a JupyterHub starts for a learner "
        "doctor show what this machine can do "
        "grade grade the notebooks of a class ",
    ),
    "lab": (
        ["lab", "--help"],
        "usage: paged-attention-course lab [FOLDER] [--only-copy] [-- JUPYTERLAB'S ARGUMENTS] "
        "Copies the lessons into a folder and opens JupyterLab there. "
        "Called again, it brings new versions. It never writes to a notebook that you have "
        "changed: the new version is put beside it, with your answers. "
        "positional arguments: FOLDER "
        "options: -h, --help show this help message and exit "
        "--only-copy do not open JupyterLab",
    ),
    "hub": (
        ["hub", "--help"],
        "usage: paged-attention-course hub FOLDER [JUPYTERHUB'S ARGUMENTS] "
        "Copies the lessons as lab does, and becomes the learner's server. "
        "It is for c.Spawner.cmd in a hub's configuration. "
        "positional arguments: FOLDER ",
    ),
}


@pytest.mark.parametrize("words, text", HELP.values(), ids=HELP)
def test_help_tells_what_there_is(capsys, words, text):
    with pytest.raises(SystemExit) as left:
        command.main(words)
    assert not left.value.code
    assert " ".join(capsys.readouterr().out.split()).startswith(text.strip())


def test_the_program_ends_with_the_commands_status(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["the program"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(command.__file__, run_name="__main__")
    assert left.value.code == 2 and "usage:" in capsys.readouterr().out


def test_a_kernel_shows_an_error_as_ever_and_then_explains_it(monkeypatch):
    done = []
    shell = SimpleNamespace(
        set_custom_exc=lambda kinds, show: done.append((kinds, show)),
        showtraceback=lambda error, tb_offset=None: done.append((error, tb_offset)),
    )
    monkeypatch.setattr(misspelt, "explain", lambda *words: done.append(words))
    monkeypatch.setattr(restart, "lesson_of_this_kernel", lambda: "01")
    kernel.load_ipython_extension(shell)
    ((kinds, show),) = done
    error = NameError("no")
    show(shell, NameError, error, "the traceback", tb_offset=3)
    assert kinds is KINDS
    assert done[1:] == [((NameError, error, "the traceback"), 3), (shell, error, "01")]


# JupyterLab


@pytest.fixture
def becomes(monkeypatch):
    """The programs that this process would have become: their words and variables."""
    became = []

    def become(program, words, variables):
        became.append((program, words, variables))
        raise Left

    monkeypatch.setattr(os, "execve", become)
    return became


def test_jupyterlab_gets_the_courses_settings_after_the_learners(becomes, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "/mine")
    with pytest.raises(Left):
        jupyterlab.start(Path("a.ipynb"), Path("."), ["--port", "1"])
    ((program, words, variables),) = becomes
    assert program == sys.executable
    here = Path.cwd()
    assert words[4:6] == [f"{here}/a.ipynb", f"--ServerApp.root_dir={here}"]
    assert words[-2:] == ["--port", "1"]
    assert variables["JUPYTER_PATH"] == f"/mine{os.pathsep}{jupyterlab.DATA}"


def test_a_hubs_server_has_the_courses_settings_and_takes_no_module_from_a_home(becomes):
    with pytest.raises(Left):
        jupyterlab.start_on_hub(["--port=1"])
    ((program, words, variables),) = becomes
    assert program == sys.executable
    assert words == [sys.executable, "-P", "-m", "jupyterhub.singleuser", "--port=1"]
    assert variables["JUPYTER_PATH"].endswith(str(jupyterlab.DATA))


@pytest.mark.parametrize("found, has_hub", [(object(), True), (None, False)])
def test_a_hub_is_there_if_python_finds_it(monkeypatch, found, has_hub):
    monkeypatch.setattr(jupyterlab, "find_spec", {"jupyterhub": found}.__getitem__)
    assert jupyterlab.has_hub() is has_hub


# The lessons, copied and opened


@pytest.fixture
def opened(monkeypatch):
    """`calls`: what has been opened, and what of `stream` had been written by then."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(Raw(written)))
    opened = SimpleNamespace(calls=[], stream=stream)
    monkeypatch.setattr(whole, "faults", lambda: "")
    monkeypatch.setattr(whole, "remedy", lambda: "a remedy")
    monkeypatch.setattr(copies, "bring", lambda *words: copies.Copied())

    def start(*words):
        opened.calls.append((*words, written.getvalue().decode()))

    monkeypatch.setattr(jupyterlab, "start", start)
    monkeypatch.setattr(jupyterlab, "start_on_hub", start)
    monkeypatch.setattr(jupyterlab, "has_hub", lambda: True)
    return opened


class Raw(io.RawIOBase):
    """A file below buffers."""

    def __init__(self, file):
        self.file = file

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


def test_the_learner_reads_where_the_lessons_are_before_jupyterlab_starts(opened, tmp_path):
    with redirect_stdout(opened.stream):
        assert lab.open_lessons(tmp_path) == 0
    said = f"The lessons are in {tmp_path}.\n"
    assert opened.calls == [(tmp_path / "00_start_here.ipynb", tmp_path, (), said)]


def test_lessons_may_only_be_copied(opened, tmp_path):
    assert lab.open_lessons(tmp_path, only_copy=True) == 0 and not opened.calls


FAILURES = {
    "a file is missing": (
        "faults",
        "kernels/sum.cu is missing",
        "The course is not whole: kernels/sum.cu is missing.\nTo mend it: a remedy\n",
    ),
    "nobody can write": ("bring", "The folder is a file.", "The folder is a file.\n"),
}


@pytest.mark.parametrize("what, words, said", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("on_hub", [False, True])
def test_what_cannot_be_copied_is_not_opened_except_on_a_hub(
    opened, monkeypatch, tmp_path, capsys, what, words, said, on_hub
):
    def fail(*words_given):
        raise copies.CannotCopy(words)

    if what == "faults":
        monkeypatch.setattr(whole, "faults", lambda: words)
    else:
        monkeypatch.setattr(copies, "bring", fail)
    if on_hub:
        lab.open_on_hub(tmp_path, ["--port=1"])
        assert opened.calls == [(["--port=1"], "")]
    else:
        assert lab.open_lessons(tmp_path) == 1 and not opened.calls
    assert capsys.readouterr().err == said


def test_on_a_hub_the_lessons_are_copied_first(opened, tmp_path):
    with redirect_stdout(opened.stream):
        lab.open_on_hub(tmp_path)
    assert opened.calls == [((), f"The lessons are in {tmp_path}.\n")]


def test_without_jupyterhub_nothing_is_copied(opened, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(jupyterlab, "has_hub", lambda: False)
    monkeypatch.setattr(copies, "bring", lambda *words: pytest.fail("it copies"))
    assert lab.open_on_hub(tmp_path) == 1 and not opened.calls
    assert "JupyterHub is not where the course is installed" in capsys.readouterr().err
