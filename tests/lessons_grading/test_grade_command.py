"""What the command of the grader says and keeps. No process is started here."""

import io
import json
import runpy
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from graded import ALL_RIGHT, RIGHT, WRONG, hand_in
from lessons_grading import command, dask_link, notebook, sandbox
from lessons_grading.command import OF_THE_JUDGE, patience
from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import digest_of
from lessons_grading.sandbox import Limits
from lessons_lib import checks
from lessons_processes.isolation import BUSY

TIME_OF_ONE = 15.0  # seconds for a notebook


class Class:
    """A folder of submissions, and graders that take the time which passes here.

    becomes: student to what is different in this grade.
    graded: the students whose notebooks were graded, in order.
    given: to the graders: seed and limits, then what else there was.
    """

    def __init__(self, folder):
        self.folder, self.now = folder, 1000.0
        self.becomes, self.graded, self.given = {}, [], []

    def monotonic(self) -> float:
        self.now += 1e-6  # no two looks at a clock are at the same time
        return self.now

    def hand_in(self, student: str, *cells: str):
        (self.folder / student).mkdir(parents=True)
        hand_in(self.folder / student, *(cells or [f"'{student}'"]))

    def run(self, *words: str) -> int:
        return command.main([str(self.folder), *words], grader=self.grade)

    def grade(self, path, student, seed, limits):
        self.graded.append(student)
        self.given.append((seed, limits))
        self.now += TIME_OF_ONE
        digest = digest_of(path.read_bytes())
        grade = SubmissionGrade(student, path.name, digest, "00", (ALL_RIGHT,), (), 0.1)
        return replace(grade, **self.becomes.get(student, {}))

    def grade_all(self, submissions, grade, workers, patience, scratch):
        self.given.append((workers, patience, scratch.is_dir()))
        for each in submissions:
            if each.problem:
                yield each, each.without_points(each.problem)
            else:
                yield each, grade(each.path, each.student)

    def results(self) -> dict:
        return json.loads((self.folder.parent / "results/results.json").read_text())


@pytest.fixture
def students(tmp_path, monkeypatch) -> Class:
    """On a machine with a sandbox that the kernel limits."""
    made = Class(tmp_path / "class")
    monkeypatch.setattr(command, "grade_all", made.grade_all)
    monkeypatch.setattr(command, "time", made)
    monkeypatch.setattr(command, "course_digest", lambda: "the course")  # reads all of it
    monkeypatch.setattr(checks, "exercises_of", lambda lesson: [])  # imports all of them
    monkeypatch.setattr(notebook, "_lessons_by_answer", dict)  # would keep that for good
    monkeypatch.setattr(sandbox, "missing", lambda: None)
    monkeypatch.setattr(sandbox, "limited_by", lambda limits: "the kernel")
    return made


def test_the_command_says_what_it_did_and_where_it_is(students, capsys):
    for name in ("ada", "bob", "eve"):
        students.hand_in(name)
    assert students.run("--seed", "7") == 0
    results = students.folder.parent / "results"
    assert capsys.readouterr().out.splitlines() == [
        f"Hidden cases of seed 7, which is kept in {results / 'seed'}.",
        "Graded: 3, 0 of them in an earlier run. Students: 3. Time: 45 s.",
        "Notebooks a minute in this run: 4.0.",
        "Limits on memory and processes were kept by the kernel.",
        f"Open {results / 'class.html'}",
    ]
    assert students.graded == ["ada", "bob", "eve"]
    data = students.results()
    assert (data["seed"], data["sandboxed"], data["limits_kept_by"]) == (7, True, "the kernel")
    assert [each["student"] for each in data["submissions"]] == ["ada", "bob", "eve"]


def test_the_next_run_grades_what_is_new_and_counts_the_rest(students, capsys):
    students.hand_in("ada")
    students.run()
    for name in ("bob", "eve"):
        students.hand_in(name)
    capsys.readouterr()
    assert students.run() == 0
    said = capsys.readouterr()
    assert "Graded: 3, 1 of them in an earlier run. Students: 3. Time: 30 s." in said.out
    assert "Notebooks a minute in this run: 4.0." in said.out
    assert students.graded == ["ada", "bob", "eve"]
    shown = said.err.split("\r")
    assert "grading:  33%" in shown[1] and " 1/3 [00:00<" in shown[1]
    assert "grading: 100%" in shown[-1] and " 3/3 [00:30<00:00, 15.00s/notebook]" in shown[-1]
    assert students.run() == 0
    said = capsys.readouterr().out
    assert "Graded: 3, 3 of them" in said and "Notebooks a minute" not in said
    assert len(students.graded) == 3 and len(students.results()["submissions"]) == 3


def test_again_grades_everything_anew(students):
    students.hand_in("ada")
    students.hand_in("bob")
    assert students.run() == students.run("--again") == 0
    assert students.graded == ["ada", "bob"] * 2


def test_the_same_code_is_graded_once_and_again_says_whether_earlier_runs_count(
    students, capsys
):
    students.hand_in("ada", RIGHT)
    students.run()
    students.hand_in("bob", RIGHT)
    capsys.readouterr()
    assert students.run() == 0 and students.graded == ["ada"]
    assert (
        "Not run again: 1 notebooks with the same code as another one, and 0 of 0 answers."
        in capsys.readouterr().out
    )
    students.run("--again")
    assert Counter(students.graded) == {"ada": 2}  # for both, but not from the first run


def test_it_counts_answers_that_were_known(students, capsys):
    students.hand_in("ada")
    students.becomes["ada"] = {"tried": 3, "repeated": 2}
    students.run()
    assert (
        "Not run again: 0 notebooks with the same code as another one, and 2 of 5 answers."
        in capsys.readouterr().out
    )


def test_it_counts_what_a_teacher_should_look_at(students, capsys):
    students.hand_in("ada")
    students.hand_in("bob")
    students.becomes["bob"] = {"events": ("cell 3 was stopped after 60 s",)}
    students.run()
    assert (
        "Notebooks to look at, stopped at a limit or not to be read: 1."
        in capsys.readouterr().out
    )


def test_what_has_no_final_grade_is_tried_again_by_the_next_run(students, capsys):
    students.hand_in("ada")
    students.hand_in("bob")
    (students.folder / "nothing").mkdir()
    students.becomes["bob"] = {"is_final": False}
    open_ones = "Without a final grade: 2. The same command tries them again."
    for _ in range(2):
        assert students.run() == 0
        assert open_ones in capsys.readouterr().out
    assert students.graded == ["ada", "bob", "bob"]


@pytest.mark.parametrize("what", ["seed", "limits", "course_digest", "mistakes_digest"])
def test_a_grade_counts_only_on_the_terms_that_it_was_given_on(students, monkeypatch, what):
    students.hand_in("ada")
    students.run("--seed", "1")
    students.run()
    assert students.graded == ["ada"]
    if what.endswith("digest"):
        monkeypatch.setattr(command, what, lambda: "another")
    other = {"seed": ("--seed", "2"), "limits": ("--limit-memory", "3")}
    assert students.run(*other.get(what, ())) == 0
    assert students.graded == ["ada"] * 2


def test_a_grader_is_told_the_terms_and_what_it_must_not_see(students):
    students.hand_in("ada")
    students.run("--seed", "5", "--workers", "3", "--limit-seconds", "2000")
    (workers, longest, has_scratch), (seed, limits) = students.given
    unseen = str(students.folder), str(students.folder.parent / "results")
    assert seed == 5 and limits == Limits(notebook_seconds=2000.0, unseen=unseen)
    assert workers == 3 and longest == patience(limits) and has_scratch


def test_the_seed_is_shown_before_anything_is_read(students, monkeypatch):
    """Even where the output goes into a file."""
    students.hand_in("ada")
    written, shown = io.BytesIO(), []

    def course_digest() -> str:
        shown.append(written.getvalue().decode())
        return "the course"

    monkeypatch.setattr(command, "course_digest", course_digest)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))
    assert students.run("--seed", "7") == 0
    assert shown[0].startswith("Hidden cases of seed 7, ")


STOPS = {
    "Ctrl-C": (KeyboardInterrupt(), 130, "Stopped. What is graded so far is kept: the same"),
    "a full disk": (
        OSError(28, "No space\nleft"),
        1,
        r"Stopped: [Errno 28] No space\nleft. What is graded so far is kept: once this is",
    ),
}


@pytest.mark.parametrize("error, code, sentence", STOPS.values(), ids=STOPS)
def test_what_stops_it_is_a_sentence_and_the_next_run_goes_on(
    students, capsys, error, code, sentence
):
    for name in ("ada", "bob"):
        students.hand_in(name)
    grade = students.grade

    def stops(path, student, **terms):
        if student == "bob":
            raise error
        return grade(path, student, **terms)

    students.grade = stops
    assert students.run() == code
    said = capsys.readouterr()
    assert f"\n{sentence}" in said.err and "Stopped" not in said.out
    assert "the same command goes on from here" in said.err
    students.grade = grade
    assert students.run() == 0 and students.graded == ["ada", "bob"]


@pytest.fixture
def cluster(students, monkeypatch):
    """Notes how each Cluster was made."""
    made = []

    @contextmanager
    def cluster(address, seed, limits, patience, say):
        made.append((address, seed, limits, patience))
        say("Worker one gets nothing to grade")

        def outcomes(submissions, alone):
            for each in submissions:
                yield each, students.grade(each.path, each.student, seed, limits)

        yield SimpleNamespace(outcomes=outcomes, limited_by={"the kernel", "a watcher"})

    monkeypatch.setattr(command, "Cluster", cluster)
    monkeypatch.setattr(dask_link, "missing", lambda: None)
    return made


def test_with_a_scheduler_its_workers_grade(students, cluster, capsys):
    students.hand_in("ada", WRONG)
    words = "--scheduler", "tcp://here:1", "--seed", "3"
    assert students.run(*words) == 0
    ((address, seed, limits, longest),) = cluster
    assert (address, seed, longest) == ("tcp://here:1", 3, patience(limits))
    assert limits.unseen == (str(students.folder), str(students.folder.parent / "results"))
    said = capsys.readouterr()
    assert "Worker one gets nothing to grade" in said.err and "Worker" not in said.out
    assert "were kept by a watcher; the kernel." in said.out
    assert students.results()["limits_kept_by"] == "a watcher; the kernel"
    assert students.run(*words) == 0 and len(cluster) == 1  # nothing is left to grade
    assert "were kept by" not in capsys.readouterr().out
    assert students.graded == ["ada"]


LONGEST = {  # seconds: of a notebook, of a build, and of two lessons' exercises; the longest
    "notebook": (900.0, 90.0, [[10.0], [20.0, 5.0]], 900.0),
    "build": (9.0, 90.0, [[10.0], [20.0, 5.0]], 90.0),
    "exercise": (9.0, 9.0, [[10.0], [20.0, 5.0]], 40.0),
}


@pytest.mark.parametrize("notebook, build, exercises, longest", LONGEST.values(), ids=LONGEST)
def test_patience_is_for_the_longest_run_and_its_judge(
    monkeypatch, notebook, build, exercises, longest
):
    """By the clock a run may take BUSY times its limit. An exercise's run has twice the limit
    of a check, because it tries the visible and the hidden cases.
    """
    monkeypatch.setattr(checks, "BUILD_TIME_LIMIT", build)
    monkeypatch.setattr(checks, "lessons", lambda: range(2))
    monkeypatch.setattr(
        checks,
        "exercises_of",
        lambda lesson: [SimpleNamespace(time_limit=limit) for limit in exercises[lesson]],
    )
    assert patience(Limits(notebook_seconds=notebook)) == BUSY * longest + OF_THE_JUDGE


def test_the_judge_has_minutes_for_what_takes_seconds():
    assert 300 <= OF_THE_JUDGE <= 3600


def test_the_folder_is_a_command_which_ends_with_the_code_of_the_grading(monkeypatch):
    monkeypatch.setattr(command, "main", lambda: 7)
    with pytest.raises(SystemExit) as ending:
        runpy.run_module("lessons_grading", run_name="__main__")
    assert ending.value.code == 7
    runpy.run_module("lessons_grading.__main__", run_name="read")  # only read, it does nothing
