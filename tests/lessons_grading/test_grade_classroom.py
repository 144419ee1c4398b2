"""A folder of submissions: its students, several graded at a time, interruptions, and losses.

In most tests a grader that only reads the file stands in for the one that runs notebooks.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import connection
from pathlib import Path

import psutil
import pytest

from graded import ALL_RIGHT, RIGHT, WRONG
from graded import hand_in as hand_in_cells
from lessons_grading import arguments, classroom, command, sandbox
from lessons_grading.classroom import grade_all
from lessons_grading.grades import SubmissionGrade
from lessons_grading.digests import course_digest, write_whole
from lessons_grading.notebook import digest_of
from lessons_grading.submissions import find_submissions


def fake_grader(path, student, seed=0, limits=None, progress=lambda: None):
    """Does what the file says. Notes in a file next to the submissions that it was called."""
    order = path.read_text()
    calls = path.parent.parent / "calls"
    with calls.open("a") as file:
        file.write(f"{student}\n")
    tried = calls.read_text().split("\n").count(student)
    if order == "raise":
        raise RuntimeError("a fault of the grader")
    if order == "die" or order == "die once" and tried == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "hang":
        time.sleep(3600)
    if order.startswith("sleep"):
        time.sleep(float(order.split()[1]))
    return SubmissionGrade(
        student, path.name, digest_of(path.read_bytes()), "00", (ALL_RIGHT,), (), 0.1
    )


@pytest.fixture
def hand_in(tmp_path):
    folder = tmp_path / "submissions"

    def hand_in(name: str, content: str = "") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    return hand_in


def outcomes(folder: Path, **options) -> dict[str, SubmissionGrade]:
    judged = grade_all(find_submissions(folder), fake_grader, **{"workers": 2} | options)
    return {submission.student: grade for submission, grade in judged}


def called(folder: Path) -> list[str]:
    return sorted((folder.parent / "calls").read_text().split())


def test_submissions_are_files_or_folders_of_students(tmp_path, hand_in):
    for name in (
        "ada.ipynb",
        "Grace Hopper/00_start_here.ipynb",
        "Grace Hopper/02_block_tables.ipynb",
        "alan/lesson2/02.IPYNB",
        "nothing/essay.pdf",
        "roster.csv",
        ".hidden.ipynb",
        "._ada.ipynb",
        "alan/.ipynb_checkpoints/02-checkpoint.ipynb",
        "__MACOSX/alan/02.ipynb",
        ".git/x.ipynb",
    ):
        hand_in(name)
    folder = tmp_path / "submissions"
    (folder / "linked").symlink_to("alan")
    (folder / "link.ipynb").symlink_to("ada.ipynb")
    assert [
        (each.student, str(each.path.relative_to(folder))) for each in find_submissions(folder)
    ] == [
        ("Grace Hopper", "Grace Hopper/00_start_here.ipynb"),
        ("Grace Hopper", "Grace Hopper/02_block_tables.ipynb"),
        ("ada", "ada.ipynb"),
        ("alan", "alan/lesson2/02.IPYNB"),
        ("link", "link.ipynb"),
        ("linked", "linked"),
        ("nothing", "nothing"),
    ]


def test_a_name_that_is_no_text_can_be_written(tmp_path):
    (tmp_path / os.fsdecode(b"Jos\xe9.ipynb")).touch()
    (submission,) = find_submissions(tmp_path)
    assert submission.student == r"Jos\xe9" and submission.path.exists()


def test_every_submission_gets_its_grade(hand_in):
    for number in range(7):
        folder = hand_in(f"student{number}.ipynb").parent
    hand_in("nothing/essay.pdf")
    grades = outcomes(folder)
    assert len(grades) == 8 and called(folder) == [f"student{number}" for number in range(7)]
    assert grades.pop("nothing").events == ("there is no notebook in this folder",)
    assert all(grade.exercises == (ALL_RIGHT,) and grade.is_final for grade in grades.values())


class Clock:
    """Stands still until only "b" is left, which hangs, and then runs ahead."""

    def __init__(self, folder: Path):
        self.folder, self.now, self.hangs = folder, 0.0, 0

    def monotonic(self) -> float:
        return self.now

    def wait(self, pipes, seconds: float):
        if len(pipes) > 1:
            return connection.wait(pipes)
        self.hangs += 1
        while called(self.folder).count("b") < self.hangs:
            time.sleep(0.01)
        assert not connection.wait(pipes, 0)
        self.now += seconds
        return []


@pytest.mark.parametrize(
    "order, reason",
    [
        ("die", "the process that graded it ended, exit code -9"),
        ("raise", "RuntimeError: a fault of the grader"),
        ("hang", "it did not come to an end"),
    ],
)
def test_what_breaks_the_grader_is_tried_once_more_and_stops_nobody(
    hand_in, monkeypatch, order, reason
):
    for name in "abcdef":
        folder = hand_in(f"{name}.ipynb", order if name == "b" else "").parent
    if order == "hang":
        monkeypatch.setattr(classroom, "time", clock := Clock(folder))
        monkeypatch.setattr(classroom, "wait", clock.wait)
    grades = outcomes(folder, patience=1_000.0)
    assert called(folder) == ["a", "b", "b", "c", "d", "e", "f"]
    broken = grades.pop("b")
    assert not broken.is_final and broken.exercises == ()
    assert broken.events == (
        f"the first attempt to grade this failed: {reason}",
        f"the second attempt failed: {reason}",
    )
    assert all(
        grade.exercises and grade.is_final and not grade.events for grade in grades.values()
    )


def test_a_second_attempt_may_do(hand_in):
    folder = hand_in("a.ipynb", "die once").parent
    grade = outcomes(folder)["a"]
    assert (
        grade.is_final
        and grade.exercises == (ALL_RIGHT,)
        and grade.events
        == (
            (
                "the first attempt to grade this failed: "
                "the process that graded it ended, exit code -9"
            ),
        )
    )


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_whole(tmp_path / "deep" / "file", "old \udc80")
    assert (tmp_path / "deep" / "file").read_text() == r"old \udc80"
    monkeypatch.setattr(os, "replace", lambda *paths: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "deep" / "file", "new")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_the_digest_of_the_course_is_the_same_each_time():
    assert course_digest() == course_digest() and len(course_digest()) == 64


def run(folder: Path, *words: str) -> int:
    return command.main(
        [str(folder), "--workers", "2", "--no-sandbox", *words], grader=fake_grader
    )


def test_the_command_writes_results_and_grades_only_what_is_new(hand_in, capsys):
    for name in ("ada", "alan"):
        folder = hand_in(f"{name}.ipynb").parent
    results = folder.parent / "results"
    assert run(folder) == 0
    assert sorted(path.name for path in results.iterdir()) == [
        ".claim",
        "class.html",
        "grades.sqlite",
        "results.csv",
        "results.json",
        "seed",
        "students",
        "submissions",
    ]
    seed = (results / "seed").read_text().strip()
    said = capsys.readouterr()
    assert (
        f"seed {seed}," in said.out
        and "Graded: 2, 0 of them in an earlier run. Students: 2." in said.out
    )
    assert "2/2" in said.err and "grading: 100%" in said.err
    hand_in("grace.ipynb")
    assert run(folder) == 0
    assert called(folder) == ["ada", "alan", "grace"]
    said = capsys.readouterr().out
    assert (
        f"seed {seed}," in said
        and "Graded: 3, 2 of them in an earlier run. Students: 3." in said
    )
    assert run(folder, "--again") == 0
    assert len(called(folder)) == 6
    assert run(folder, "--seed", "7") == 0 and run(folder) == 0
    assert len(called(folder)) == 9 and (results / "seed").read_text() == "7\n"


def test_two_classes_do_not_mix(hand_in, capsys):
    """Both lie in the same folder, so that the usual place of their results is the same."""
    folder = hand_in("ada.ipynb").parent
    other = folder.parent / "other class"
    shutil.copytree(folder, other)
    results = folder.parent / "results"
    assert run(folder) == 0
    before = (results / "results.csv").read_bytes()
    with pytest.raises(SystemExit) as refusal:
        run(other)
    said = capsys.readouterr().err
    assert refusal.value.code == 2 and "choose another --results" in said
    assert f"{results} has the grades of ../submissions, not of ../other class" in said
    assert (results / "results.csv").read_bytes() == before
    assert called(other) == ["ada"]  # by the first run
    assert run(other, "--results", str(folder.parent / "of the other")) == 0
    assert run(folder) == 0
    (results / "submissions").unlink()  # as the message says, for a class that was renamed
    assert run(other) == 0


def test_what_could_not_be_graded_is_tried_again_by_the_next_run(hand_in, capsys):
    folder = hand_in("ada.ipynb", "die").parent
    assert run(folder) == 0
    assert "not to be read: 1." in capsys.readouterr().out
    assert run(folder) == 0 and called(folder) == ["ada"] * 4


def test_without_a_sandbox_the_command_refuses_unless_told(hand_in, monkeypatch, capsys):
    folder = hand_in("a.ipynb").parent
    monkeypatch.setattr(
        arguments.sandbox,
        "missing",
        lambda: "bubblewrap is missing: apt-get install bubblewrap",
    )
    with pytest.raises(SystemExit) as refusal:
        command.main([str(folder)], grader=fake_grader)
    assert refusal.value.code == 2
    assert "apt-get install bubblewrap" in capsys.readouterr().err
    assert run(folder) == 0
    assert "Graded without a sandbox" in (folder.parent / "results/class.html").read_text()
    assert (
        json.loads((folder.parent / "results/results.json").read_text())["sandboxed"] is False
    )


def start(folder: Path) -> subprocess.Popen:
    """The command as from a terminal, stopped in the middle: two submissions are done and two
    take for ever.
    """
    for name, order in (
        ("a", ""),
        ("b", ""),
        ("c", "sleep 3600"),
        ("d", "sleep 3600"),
        ("e", ""),
    ):
        (folder / f"{name}.ipynb").write_text(order)
    # A shell that starts something in the background, as CI may, makes it deaf to Ctrl-C.
    script = (
        "import signal, sys, test_grade_classroom as test\n"
        "from lessons_grading.command import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(main(sys.argv[1:], grader=test.fake_grader))"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            str(folder),
            "--workers",
            "2",
            "--no-sandbox",
            "--seed",
            "1",
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    while not (folder.parent / "calls").exists() or called(folder) != ["a", "b", "c", "d"]:
        assert process.poll() is None
        time.sleep(0.05)
    return process


def assert_resumes(folder: Path):
    assert (folder.parent / "results/grades.sqlite").exists()
    assert not (folder.parent / "results/class.html").exists()
    for name in "cd":
        (folder / f"{name}.ipynb").write_text("")
    assert run(folder) == 0
    assert called(folder) == ["a", "b", "c", "c", "d", "d", "e"]


@pytest.mark.slow
def test_ctrl_c_ends_it_with_a_sentence_and_the_next_run_goes_on(hand_in):
    folder = hand_in("a.ipynb").parent
    process = start(folder)
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 130
    said = process.stderr.read()
    assert "Stopped. What is graded so far is kept" in said and "Traceback" not in said
    psutil.wait_procs(workers)  # for ever, if one stays
    assert_resumes(folder)


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_and_the_next_run_goes_on(hand_in):
    folder = hand_in("a.ipynb").parent
    process = start(folder)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    psutil.wait_procs(workers)  # for ever, if one stays
    assert_resumes(folder)


def grade_class(folder: Path, cells: dict[str, tuple[str, ...]]) -> dict[str, dict]:
    """Lets the command run notebooks of these cells, and returns what it says of each
    student.
    """
    for student, sources in cells.items():
        (folder / student).mkdir(parents=True)
        hand_in_cells(folder / student, *sources)
    assert (
        command.main([str(folder), "--workers", "2", "--limit-seconds", "60", "--seed", "1"])
        == 0
    )
    data = json.loads((folder.parent / "results/results.json").read_text())
    return {grade["student"]: grade for grade in data["submissions"]}


@pytest.mark.skipif(bool(sandbox.missing()), reason="bubblewrap is missing")
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
    assert (
        "FileNotFoundError" in grades["eve"]["events"][0]
        and "this is not a notebook" in grades["zuse"]["events"][0]
    )


@pytest.mark.slow
@pytest.mark.skipif(bool(sandbox.missing()), reason="bubblewrap is missing")
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
