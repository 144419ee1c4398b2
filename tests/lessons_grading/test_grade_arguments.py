"""The arguments of the grader: what each option is for, what is usual, and what is refused."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from graded import RIGHT, hand_in
from lessons_grading import command, sandbox
from lessons_grading.command import read_arguments
from lessons_grading.sandbox import Limits
from lessons_grading.store import LARGEST_SEED

GIB = 1 << 30


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A class of one notebook, on a machine that has a sandbox and no Dask."""
    monkeypatch.setattr(sandbox, "missing", lambda: None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    (tmp_path / "class").mkdir()
    hand_in(tmp_path / "class", RIGHT, name="ada.ipynb")
    return tmp_path / "class"


def read(folder: Path, *words: str):
    arguments = read_arguments([str(folder), *words])
    arguments.store.close()
    return arguments


def refusal(capsys, *words: object) -> str:
    """What is said of arguments that are refused."""
    with pytest.raises(SystemExit) as refused:
        read_arguments([str(word) for word in words])
    assert refused.value.code == 2
    return capsys.readouterr().err


def test_a_folder_of_submissions_is_enough(folder, monkeypatch):
    monkeypatch.setattr(command, "usual_workers", lambda: 5)
    arguments = read(folder)
    assert [each.student for each in arguments.submissions] == ["ada"]
    assert (arguments.folder, arguments.results) == (folder, folder.parent / "results")
    assert arguments.limits == Limits() and arguments.workers == 5
    assert arguments.again is False and arguments.scheduler is None
    assert 0 <= arguments.store.seed <= LARGEST_SEED


def test_each_option_may_be_chosen(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    arguments = read(
        folder.relative_to(folder.parent),
        *("--results", "elsewhere", "--workers", "1", "--seed", "3", "--again"),
        *("--limit-seconds", "0.5", "--limit-memory", "0.5", "--no-sandbox"),
    )
    assert arguments.results == folder.parent / "elsewhere" and arguments.folder == folder
    assert (arguments.workers, arguments.store.seed, arguments.again) == (1, 3, True)
    assert arguments.limits == Limits(
        cell_seconds=0.5, notebook_seconds=0.5, memory=GIB // 2, sandboxed=False
    )
    assert not (folder.parent / "results").exists()


def test_a_cell_has_no_more_time_than_its_notebook_and_no_more_than_usual(folder):
    assert read(folder, "--limit-seconds", "30").limits.cell_seconds == 30
    assert read(folder, "--limit-seconds", "5000").limits == Limits(notebook_seconds=5000.0)


@pytest.mark.parametrize("option", ["--workers", "--limit-seconds", "--limit-memory"])
@pytest.mark.parametrize("amount", ["0", "-1"])
def test_nothing_and_less_are_refused(folder, capsys, option, amount):
    said = refusal(capsys, folder, f"{option}={amount}")
    assert f"{option}: must be more than 0, not {amount}" in said


@pytest.mark.parametrize(
    "option", ["--workers=1.5", "--seed=x", "--limit-seconds=x", "--limit-memory=x"]
)
def test_what_is_no_number_is_refused(folder, capsys, option):
    assert f"argument {option.split('=')[0]}: invalid" in refusal(capsys, folder, option)


def shown_help(capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        read_arguments(["--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_says_what_each_option_is_and_its_usual_value(capsys, monkeypatch):
    monkeypatch.setattr(command, "usual_workers", lambda: 5)
    shown = shown_help(capsys)
    for words in (
        "Grades notebooks: STUDENT.ipynb, STUDENT/*.ipynb, or nbgrader's",
        "SUBMISSIONS the folder of what was handed in",
        "--results DIR where the results go; `results` beside SUBMISSIONS",
        "--workers N notebooks at a time; 5 on this machine",
        "--seed S of the hidden cases; by chance at first, then kept",
        "--limit-seconds S for all cells of a notebook; 600",
        "--limit-minutes M by the clock, for all that is done with a notebook; 15",
        "--limit-memory GIB for all processes of a notebook; 4",
        "--scheduler ADDRESS of Dask, such as tcp://10.0.0.1:8786: its workers grade",
        "--again grade everything anew",
        "--no-sandbox do without bubblewrap: then a submission can read and change",
    ):
        assert words in shown


def test_a_scheduler_needs_dask_and_workers_with_a_sandbox(folder, monkeypatch, capsys):
    scheduler = "--scheduler", "tcp://here:8786"
    assert "do not go together" in refusal(capsys, folder, *scheduler, "--no-sandbox")
    assert "--scheduler needs Dask: install" in refusal(capsys, folder, *scheduler)
    monkeypatch.setitem(sys.modules, "distributed", ModuleType("distributed"))
    assert "do not go together" in refusal(capsys, folder, *scheduler, "--no-sandbox")
    assert read(folder, *scheduler).scheduler == "tcp://here:8786"
    assert read(folder, "--no-sandbox").scheduler is None


def test_a_sandbox_is_needed_where_notebooks_run(folder, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "missing", lambda: "bubblewrap is missing")
    monkeypatch.setitem(sys.modules, "distributed", ModuleType("distributed"))
    assert "bubblewrap is missing" in refusal(capsys, folder)
    assert not read(folder, "--no-sandbox").limits.sandboxed
    assert read(folder, "--scheduler", "tcp://here:8786").limits.sandboxed


def test_the_folder_has_to_be_there_with_notebooks_in_it(folder, capsys):
    nowhere, empty = folder.parent / "nowhere", folder.parent / "empty"
    empty.mkdir()
    assert f"{nowhere} is no folder" in refusal(capsys, nowhere)
    assert "ada.ipynb is no folder" in refusal(capsys, folder / "ada.ipynb")
    assert f"there is no notebook in {empty}" in refusal(capsys, empty)
    assert not (folder.parent / "results").exists()


@pytest.mark.parametrize("inside", [".", "results", "ada.ipynb/x", "../class/results"])
def test_results_do_not_lie_among_the_submissions(folder, capsys, inside):
    said = refusal(capsys, folder, "--results", folder / inside)
    assert "the results cannot lie among the submissions" in said
    assert "choose another --results" in said
    assert sorted(path.name for path in folder.iterdir()) == ["ada.ipynb"]


def test_results_need_a_folder(folder, capsys):
    (folder.parent / "file").touch()
    assert "File exists" in refusal(capsys, folder, "--results", folder.parent / "file")


def test_a_teachers_mistakes_have_to_be_readable(folder, monkeypatch, capsys):
    monkeypatch.setenv("LESSONS_MISTAKES", str(folder / "no such file.py"))
    assert "no such file.py" in refusal(capsys, folder)


@pytest.mark.parametrize("seed", [0, LARGEST_SEED])
def test_a_seed_is_kept_for_the_next_run(folder, seed):
    assert read(folder, f"--seed={seed}").store.seed == seed
    assert read(folder).store.seed == seed
    assert read(folder, "--seed", "7").store.seed == read(folder).store.seed == 7


@pytest.mark.parametrize("seed", ["-1", "2147483648"])
def test_a_seed_out_of_range_is_refused(folder, capsys, seed):
    said = refusal(capsys, folder, f"--seed={seed}")
    assert f"--seed: must be from 0 to 2147483647, not {seed}" in said


def test_the_results_are_held_as_long_as_the_command_runs(folder, capsys):
    with read_arguments([str(folder)]).store:
        assert "another grader is at work on" in refusal(capsys, folder)
    read(folder)


def test_without_words_those_of_the_command_line_are_read(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["grade", str(folder), "--seed", "4"])
    arguments = read_arguments(None)
    arguments.store.close()
    assert arguments.store.seed == 4
