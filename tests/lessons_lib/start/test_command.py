"""The command `paged-attention-course`: it copies lessons and never writes over an answer."""

import re
import subprocess
import sys

import pytest

from lessons_command import __main__ as command
from lessons_command import lab
from lessons_grading import arguments as grading_arguments
from lessons_lib import verbs, whole
from lessons_lib.paths import NOTEBOOKS, ROOT


@pytest.mark.parametrize("place", ["a file", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_one_sentence(place, tmp_path, capsys):
    (tmp_path / "a file").write_text("mine")
    assert command.main(["lab", str(tmp_path / place), "--only-copy"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "a file").read_text() == "mine"


def test_jupyterlab_opens_in_the_folder_with_the_arguments(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(lab.jupyterlab, "start", lambda *words: called.append(words))
    monkeypatch.chdir(tmp_path)
    assert command.main(["lab", "mine", "--", "--port", "8890"]) == 0
    folder = lab.Path("mine")
    assert called == [(folder / "00_start_here.ipynb", folder, ["--port", "8890"])]
    assert (tmp_path / "mine" / "00_start_here.ipynb").read_text() == (
        NOTEBOOKS / "00_start_here.ipynb"
    ).read_text()


def test_a_port_is_not_taken_for_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        command.main(["lab", "--port", "8890"])
    words = (
        "no argument --port here. JupyterLab's come after --: paged-attention-course lab -- "
    )
    assert words + "--port 8890\n" in capsys.readouterr().err and not [*tmp_path.iterdir()]


def test_the_lines_for_teachers_are_those_that_the_hubs_test_tries():
    page = (ROOT / "TEACHING.md").read_text()
    (lines,) = re.findall(r"```python\n(c\..*?)```", page, re.DOTALL)
    assert (ROOT / "tests/support/hub_config.py").read_text().endswith(lines)


def test_a_hubs_server_has_the_courses_kernel_and_is_safe_from_files_in_a_home(
    tmp_path, monkeypatch
):
    called = []
    monkeypatch.setattr(lab.jupyterlab, "has_hub", lambda: True)
    monkeypatch.setattr(lab.jupyterlab.os, "execve", lambda *words: called.append(words))
    monkeypatch.chdir(tmp_path)
    command.main(["hub", "lessons", "--allow-root", "--port=1"])
    ((program, words, variables),) = called
    assert program == sys.executable
    server = [sys.executable, "-P", "-m", "jupyterhub.singleuser"]
    assert words == [*server, "--allow-root", "--port=1"]
    assert str(lab.jupyterlab.DATA) in variables["JUPYTER_PATH"]
    assert (tmp_path / "lessons" / "00_start_here.ipynb").exists()


def test_a_hubs_server_starts_where_nothing_can_be_copied(tmp_path, monkeypatch, capsys):
    called = []
    monkeypatch.setattr(lab.jupyterlab, "has_hub", lambda: True)
    monkeypatch.setattr(lab.jupyterlab, "start_on_hub", called.append)
    (tmp_path / "lessons").write_text("mine")
    command.main(["hub", str(tmp_path / "lessons"), "--port=1"])
    assert called == [["--port=1"]] and "is a file" in capsys.readouterr().err


def test_without_jupyterhub_the_log_says_where_it_belongs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab.jupyterlab, "has_hub", lambda: False)
    assert command.main(["hub", str(tmp_path / "lessons")]) == 1
    assert f"{sys.executable} -m pip install jupyterhub" in capsys.readouterr().err


def test_the_command_alone_says_what_it_can_do(capsys):
    assert command.main([]) == 2
    assert "copy the lessons into your own folder" in capsys.readouterr().out


def test_jupyterlab_is_this_pythons_own():
    """`jupyter lab` looks for a program, which may be missing or another Python's."""
    words = lab.jupyterlab.command(lab.Path("a.ipynb"), lab.Path(), [])
    assert words[:4] == [sys.executable, "-P", "-m", "jupyterlab"]


@pytest.mark.heavy
def test_grade_and_doctor_are_the_same_commands_as_in_a_checkout():
    run = subprocess.run(
        [sys.executable, "-m", "lessons_command", "grade", "--help"],
        capture_output=True,
        text=True,
    )
    assert "SUBMISSIONS" in run.stdout
    with pytest.raises(SystemExit):
        command.main(["doctor", "--port"])


def test_where_the_course_is_installed_grade_is_called_as_it_was_typed(monkeypatch, capsys):
    monkeypatch.setattr(grading_arguments, "IS_CHECKOUT", False)
    with pytest.raises(SystemExit):
        command.main(["grade"])
    assert "usage: paged-attention-course grade " in capsys.readouterr().err


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one kernel, which the test may delete."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "sum.cu").write_text("// a kernel")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(whole, "ROOT", tmp_path)
    whole._faults_seen_first.cache_clear()
    yield tmp_path
    whole._faults_seen_first.cache_clear()


def test_no_check_blames_a_learner_for_a_missing_file(checkout):
    assert whole.faults() == ""
    (checkout / "kernels" / "sum.cu").unlink()
    with pytest.raises(whole.CourseDamaged, match=r"kernels/sum\.cu.*git -C"):
        verbs.check("0.1", lambda num_tokens, block_size: 1)
    with pytest.raises(whole.CourseDamaged):
        verbs.open_lesson("00")


def test_a_copy_without_git_is_taken_as_it_is(checkout, monkeypatch):
    (checkout / "kernels" / "sum.cu").unlink()
    monkeypatch.setenv("PATH", "")
    assert whole.faults() == ""


def test_what_mends_an_installed_course_is_its_file_and_no_name_of_an_index(monkeypatch):
    """`pip install paged-attention-course` finds nothing, or what somebody else put there."""
    monkeypatch.setattr(whole, "IS_CHECKOUT", False)
    for command_line in (whole.remedy(), whole.REINSTALL):
        installs, _, rest = command_line.partition("paged_attention_course-….whl")
        assert installs.startswith("pip install ") and whole.NAME not in installs
        assert "pip install" not in rest
