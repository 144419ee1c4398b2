"""The command on a class, with processes that a stand-in grades in: nothing is done twice, and
nothing is lost.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fake_grader import GRADER, students  # noqa: F401
from graded import RIGHT, WRONG, needs_sandbox
from graded import hand_in as hand_in_cells
from lessons_grading import command
from lessons_grading.store import GradeStore


def test_the_command_writes_results_and_grades_only_what_is_new(students, capsys):
    for name in ("ada", "bob"):
        students.hand_in(name)
    assert students.run("--seed", "7") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    file = students.results / "grades.sqlite"
    assert lines[0] == f"Hidden cases of seed 7, which is kept in {file}."
    assert "Graded: 2, 0 of them in an earlier run. Students: 2. Time: " in lines[1]
    assert lines[2].startswith("Notebooks a minute in this run: ")
    assert lines[3].startswith("Limits on memory and processes were kept by ")
    assert lines[-1] == f"Open {students.results / 'class.html'}"
    assert "2/2" in said.err and "grading: 100%" in said.err
    assert sorted(path.name for path in students.results.iterdir()) == [
        *(".lock", "class.html", "grades.sqlite", "results.csv", "results.json", "students")
    ]
    students.hand_in("eve")
    assert students.run() == 0
    assert "Graded: 3, 2 of them in an earlier run." in capsys.readouterr().out
    assert students.all_tried() == {"ada": 1, "bob": 1, "eve": 1}
    assert students.grades()["eve"]["events"] == ["seed 7"]
    assert students.run() == 0  # nothing is left
    assert "a minute" not in capsys.readouterr().out and len(students.grades()) == 3
    for words in (["--again"], ["--seed", "8"], ["--seed", "8", "--limit-memory", "3"]):
        before = students.tried("ada")
        assert students.run(*words) == 0 and students.tried("ada") == before + 1


REASONS = {
    "die": "the process that graded it ended, exit code -9",
    "raise": "OSError: [Errno 28] No space left on device",
    "big": "its grade has 5 MB",
}


@pytest.mark.slow
def test_what_breaks_the_grader_is_tried_once_more_and_stops_nobody(students, capsys):
    for name in ("ada", "bob", "eve"):
        students.hand_in(name)
    for order in (*REASONS, "die once", "open", "open once"):
        students.hand_in(order.replace(" ", "_"), order)
    assert students.run("--workers", "2") == 0
    grades = students.grades()
    for order, reason in REASONS.items():
        broken = grades.pop(order)
        assert not broken["is_final"] and not broken["exercises"]
        assert broken["events"] == [
            f"the first attempt to grade this failed: {reason}",
            f"the second attempt failed: {reason}",
        ]
    assert not grades.pop("open")["is_final"]
    assert grades["die_once"]["events"][1:] == [
        "the first attempt to grade this failed: "
        "the process that graded it ended, exit code -9"
    ]
    assert all(grade["is_final"] and grade["exercises"] for grade in grades.values())
    said = capsys.readouterr().out
    assert "Without a final grade: 4. The same command tries them again." in said
    tried = students.all_tried()
    assert students.run() == 0
    twice_more = {*REASONS, "open"}
    assert students.all_tried() == {
        name: times + 2 * (name in twice_more) for name, times in tried.items()
    }


@pytest.mark.slow
def test_who_uses_up_all_time_twice_is_not_waited_for_again(students):
    students.hand_in("eve", "over")
    for _ in range(2):
        assert students.run() == 0
        assert students.tried("eve") == 2 and students.grades()["eve"]["is_final"]


def test_notebooks_with_the_same_code_are_graded_once(students, capsys):
    for name in ("ada", "bob", "eve"):
        students.hand_in(name, "event a cell was stopped", code_of="ada")
    assert students.run() == 0
    assert students.all_tried() == {"ada": 1}
    grades = students.grades()
    assert [grade["is_repeat"] for grade in grades.values()] == [False, True, True]
    assert len({grade["digest"] for grade in grades.values()}) == 3
    said = capsys.readouterr().out
    assert "Not run again: 2 notebooks with the same code as another one, and 2 of 5" in said
    assert "Notebooks to look at, stopped at a limit or not to be read: 3." in said
    students.hand_in("zoe", "event a cell was stopped", code_of="ada")  # in a later run
    assert students.run() == 0 and students.grades()["zoe"]["is_repeat"]
    assert students.all_tried() == {"ada": 1}
    assert students.run("--again") == 0 and students.all_tried() == {"ada": 2}


@pytest.mark.slow
def test_a_fault_is_that_of_all_who_have_the_same_code_and_tried_again(students):
    for name in ("ada", "bob"):
        students.hand_in(name, "die", code_of="ada")
    for times in (2, 4):
        assert students.run() == 0
        assert students.all_tried() == {"ada": times}
        assert not any(grade["is_final"] for grade in students.grades().values())


def test_a_file_that_cannot_be_read_is_a_line_and_tried_by_the_next_run(students):
    students.hand_in("ada").rename(students.folder / "ada.txt")
    (students.folder / "ada.ipynb").symlink_to("ada.txt")
    (students.folder / "essay").mkdir()
    students.hand_in("zoe").write_text("no JSON")
    students.hand_in("bob")
    assert students.run() == 0
    grades = students.grades()
    assert {name: grade["is_final"] for name, grade in grades.items()} == {
        **dict.fromkeys(["ada", "essay"], False),
        **dict.fromkeys(["bob", "zoe"], True),
    }
    assert grades["ada"]["events"] == ["this is a link, and links are not followed"]
    assert "this is not a notebook: JSON is malformed" in grades["zoe"]["events"][0]
    (students.folder / "ada.ipynb").unlink()
    (students.folder / "ada.txt").rename(students.folder / "ada.ipynb")
    assert students.run() == 0 and students.grades()["ada"]["is_final"]
    assert students.all_tried() == {"ada": 1, "bob": 1}


@pytest.mark.slow
def test_two_classes_do_not_mix(students, capsys):
    """Both lie in the same folder, so that the usual place of their results is the same."""
    students.hand_in("ada")
    other = students.folder.parent / "other class"
    shutil.copytree(students.folder, other)
    assert students.run() == 0
    before = (students.results / "results.csv").read_bytes()
    words = [str(other), "--no-sandbox"]
    with pytest.raises(SystemExit) as refusal:
        command.main(words, grader=GRADER)
    said = capsys.readouterr().err
    assert refusal.value.code == 2 and "choose another --results" in said
    assert f"{students.results} has the grades of ../class, not of ../other class" in said
    assert (students.results / "results.csv").read_bytes() == before
    assert command.main([*words, "--results", str(other.parent / "its")], grader=GRADER) == 0


def test_a_folder_belongs_to_one_grader_at_a_time(students, capsys):
    students.hand_in("ada")
    with GradeStore(students.results, students.folder):
        with pytest.raises(SystemExit) as refusal:
            students.run()
        said = capsys.readouterr().err
        assert refusal.value.code == 2
        assert f"another grader is at work on {students.results}: wait" in said
        assert students.run("--results", str(students.folder.parent / "elsewhere")) == 0
    assert students.run() == 0


def test_a_store_that_cannot_be_written_is_a_sentence(students, capsys):
    students.hand_in("ada")
    (students.results / "grades.sqlite").mkdir(parents=True)
    with pytest.raises(SystemExit):
        students.run()
    assert "cannot be read or written (unable to open database" in capsys.readouterr().err
    (students.results / "grades.sqlite").rmdir()
    (students.results / "results.csv").mkdir()
    assert students.run() == 1
    said = capsys.readouterr().err
    assert "Stopped: " in said and "once this is mended" in said and "Traceback" not in said


def start(students) -> subprocess.Popen:
    """The command as from a terminal, stopped in the middle: two submissions are done and two
    take for ever.
    """
    for name, order in zip("abcde", ("go", "go", "wait 3600", "wait 3600", "go"), strict=True):
        students.hand_in(name, order)
    # A shell that starts something in the background, as CI may, makes it deaf to Ctrl-C.
    script = (
        "import signal, sys\nfrom lessons_grading.command import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.exit(main(sys.argv[1:], grader={GRADER!r}))"
    )
    words = [str(students.folder), "--workers", "2", "--no-sandbox", "--seed", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    while students.all_tried() != dict.fromkeys("abcd", 1):
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_no_process_and_the_next_goes_on(students, ended_by):
    process = start(students)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    os.killpg(process.pid, ended_by)
    assert process.wait() == (130 if ended_by == signal.SIGINT else -signal.SIGKILL)
    said = process.stderr.read()
    assert "Traceback" not in said
    assert ended_by != signal.SIGINT or "Stopped. What is graded so far is kept" in said
    psutil.wait_procs(workers)  # for ever, if one stays
    assert not (students.results / "class.html").exists()
    for name in "cd":
        students.hand_in(name)
    assert students.run() == 0
    assert students.all_tried() == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 1}


def grade_class(folder: Path, cells: dict[str, tuple[str, ...]]) -> dict[str, dict]:
    """Lets the command run notebooks of these cells, and returns what it says of each."""
    for student, sources in cells.items():
        (folder / student).mkdir(parents=True)
        hand_in_cells(folder / student, *sources)
    words = [str(folder), "--workers", "2", "--limit-seconds", "60", "--seed", "1"]
    assert command.main(words) == 0
    data = json.loads((folder.parent / "results/results.json").read_text())
    return {grade["student"]: grade for grade in data["submissions"]}


@needs_sandbox
def test_the_whole_command_with_real_notebooks(tmp_path):
    (tmp_path / "class" / "zuse").mkdir(parents=True)
    (tmp_path / "class" / "zuse" / "00.ipynb").write_text("no JSON")
    peek = f"import os; print(os.listdir({str(tmp_path)!r}))"
    grades = grade_class(
        tmp_path / "class", {"ada": (RIGHT,), "alan": (WRONG,), "eve": (peek, RIGHT)}
    )
    assert [grades[name]["exercises"][0]["mistake"] for name in ("ada", "alan", "eve")] == [
        None,
        "floor-division",
        None,
    ]
    assert "FileNotFoundError" in grades["eve"]["events"][0]
    assert "this is not a notebook" in grades["zuse"]["events"][0]


@pytest.mark.slow(nightly=True)
@needs_sandbox
def test_two_hundred_submissions_and_some_that_do_harm(tmp_path):
    harm = {
        "student031": "while True: pass",
        "student061": "import os; os._exit(0)",
        "student091": "import ctypes; ctypes.string_at(0)",
        "student121": "import os\nwhile True: os.fork()",
        "student151": "grown = []\nwhile True: grown.append(bytearray(1 << 24))",
    }
    names = [f"student{number:03d}" for number in range(200)]
    grades = grade_class(
        tmp_path / "class",
        {
            name: (RIGHT if number % 3 else WRONG, *([harm[name]] if name in harm else []))
            for number, name in enumerate(names)
        },
    )
    assert {name: grade["exercises"][0]["passed"] for name, grade in grades.items()} == {
        name: bool(number % 3) for number, name in enumerate(names)
    }
    assert all(bool(grade["events"]) == (name in harm) for name, grade in grades.items())
