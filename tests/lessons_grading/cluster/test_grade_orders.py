"""Orders to the workers of a scheduler, and what becomes of each. Dask is a stand-in here."""

import importlib
import itertools
import json
import sys
from types import SimpleNamespace

import pytest

import graded
from dask_stand_in import NEVER, Dask, Future, graded_by, outcomes, queue_that_waits
from lessons_grading import cluster, crew, dask_link, judge, remote
from lessons_grading.cluster import Cluster
from lessons_grading.crew import NoWorkers
from lessons_grading.grades import SubmissionGrade
from lessons_grading.digests import mistakes_digest
from lessons_grading.remote import LARGEST_REPLY
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import find_submissions

LIMITS = Limits(sandboxed=False)


@pytest.fixture
def submissions(tmp_path):
    for student in ("ada", "alan", "bob"):
        (tmp_path / "class" / student).mkdir(parents=True)
        graded.hand_in(tmp_path / "class" / student, graded.RIGHT)
    return find_submissions(tmp_path / "class")


@pytest.fixture
def over(monkeypatch):
    """Makes a Cluster over such a scheduler; `said` are its sentences."""
    monkeypatch.setattr(cluster, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(cluster, "queue", queue_that_waits(lambda seconds: None))
    monkeypatch.setattr(cluster, "course_digest", lambda: "the course")

    def made(dask: Dask, **other) -> Cluster:
        monkeypatch.setattr(dask_link, "connect", lambda address, seconds: dask)
        made.said = []
        return Cluster("tcp://here:1", 3, LIMITS, 60.0, made.said.append, **other)

    return made


def test_each_submission_goes_to_one_worker_with_all_that_it_needs(over, submissions):
    dask = Dask("one", "two")
    with over(dask, grader="graders:grade") as workers:
        found = outcomes(workers, submissions)
    assert (
        {outcome.student for outcome in found.values()} == set(found) == {"ada", "alan", "bob"}
    )
    assert workers.limited_by == {"the kernel"}
    assert sorted(dask.looks) == ["one", "two"] and len(dask.orders) == 3
    (command,) = {order["command"] for _, order in dask.orders}
    for name, order in dask.orders:
        work = order.pop("work")
        assert order == {
            "command": command,
            "course": "the course",
            "mistakes": mistakes_digest(),
            "patience": 60.0,
            "instance": f"instance of {name}",
        }
        assert (work["seed"], work["grader"]) == (3, "graders:grade")
        assert work["limits"]["sandboxed"] is False and work["name"].endswith(".ipynb")
    keys, asked = zip(*dask.asked, strict=True)
    assert len(set(keys)) == 5
    for each in asked:
        assert each["allow_other_workers"] is False and each["pure"] is False
    assert dask.closed == 1 and not dask.ran  # nothing was at work


def test_the_course_itself_grades_if_nothing_else_is_asked_for(over, submissions):
    dask = Dask("one")
    with over(dask) as workers:
        outcomes(workers, submissions[:1])
    module, function = dask.orders[0][1]["work"]["grader"].split(":")
    assert getattr(importlib.import_module(module), function) is judge.grade_read


def test_a_notebook_that_cannot_be_read_now_is_sent_to_nobody(over, submissions):
    dask = Dask("one")
    submissions[0].path.unlink()
    submissions[0].path.mkdir()
    with over(dask) as workers:
        found = outcomes(workers, submissions)
    assert not found["ada"].is_final and not found["ada"].digest
    assert len(found) == 3 and len(dask.orders) == 2


REPLIES = {
    "lost": (json.dumps({"lost": "it died"}), "it died, on one (tcp://one)"),
    "failed": (json.dumps({"failed": "no space"}), "no space, on one (tcp://one)"),
    "no text": (7, "its reply is too large, on one (tcp://one)"),
    "too large": ("x" * (LARGEST_REPLY + 1), "its reply is too large, on one (tcp://one)"),
    "as large as can be": (
        " " * (LARGEST_REPLY - 15) + '{"lost": "all"}',
        "all, on one (tcp://one)",
    ),
    "no JSON": ("{", "its reply is no JSON, on one (tcp://one)"),
    "no object": ("[1]", "its reply is no object, on one (tcp://one)"),
    "half a grade": (
        '{"grade": {"student": "ada"}}',
        "what came from its worker cannot be read, one (tcp://one)",
    ),
    "a killed worker": (
        type("KilledWorker", (Exception,), {})("key"),
        "its worker ended, on one (tcp://one)",
    ),
    "no course": (
        ModuleNotFoundError("No module named 'lessons_grading'"),
        "the course is not installed there, or is older (No module named 'lessons_grading'), "
        "on one (tcp://one)",
    ),
    "an older course": (
        AttributeError("no grade"),
        "the course is not installed there, or is older (no grade), on one (tcp://one)",
    ),
    "its own fault": (ValueError("odd"), "ValueError: odd, on one (tcp://one)"),
}


@pytest.mark.parametrize("reply, reason", REPLIES.values(), ids=REPLIES)
def test_why_a_submission_has_no_grade(over, submissions, reply, reason):
    dask = Dask("one")
    dask.reply = lambda worker, order: reply
    with over(dask) as workers:
        assert outcomes(workers, submissions[:1]) == {"ada": reason}


@pytest.mark.parametrize("other", [{"digest": "another"}, {"student": "eve"}])
def test_a_grade_for_something_else_is_none(over, submissions, other):
    dask = Dask("one")
    dask.reply = lambda worker, order: graded_by(order, **other)
    with over(dask) as workers:
        found = outcomes(workers, submissions[:1])
    assert found == {"ada": "what came from its worker cannot be read, one (tcp://one)"}
    assert not workers.limited_by


def test_three_faults_in_a_row_are_the_workers(over, submissions):
    dask = Dask("one", threads=3)
    dask.reply = lambda worker, order: json.dumps({"failed": "no space"})
    with over(dask) as workers:
        outcomes(workers, submissions)
    assert over.said == [
        "Worker one (tcp://one) gets nothing to grade: 3 submissions in a row failed there, "
        "the last with no space"
    ]


def test_a_grade_between_them_makes_the_others_be_forgotten(over, submissions):
    dask, number = Dask("one"), itertools.count()
    dask.reply = lambda worker, order: (
        graded_by(order) if next(number) == 2 else json.dumps({"failed": "no space"})
    )
    with over(dask) as workers:
        outcomes(workers, submissions)
        outcomes(workers, submissions[2:])
    assert not over.said and len(dask.orders) == 4


def test_what_another_worker_should_get_comes_again(over, submissions):
    """Its worker is not what it was, and gets nothing more."""
    dask = Dask("one", "two")
    dask.reply = lambda worker, order: (
        json.dumps({"other": "its course changed meanwhile"})
        if worker == "one"
        else graded_by(order)
    )
    with over(dask) as workers:
        found = outcomes(workers, submissions)
    assert all(isinstance(outcome, SubmissionGrade) for outcome in found.values())
    assert [name for name, _ in dask.orders].count("one") == 1
    assert over.said == [
        "Worker one (tcp://one) gets nothing to grade: its course changed meanwhile"
    ]


def test_a_worker_that_was_started_again_is_looked_at_again(over, submissions):
    dask, number = Dask("one"), itertools.count()
    dask.reply = lambda worker, order: (
        graded_by(order) if next(number) else json.dumps({"restarted": "started again"})
    )
    with over(dask) as workers:
        found = outcomes(workers, submissions)
    assert [each for each in found.values() if isinstance(each, str)] == [
        "started again, one (tcp://one)"
    ]
    assert dask.looks == ["one", "one"]


def test_an_order_that_dask_forgot_is_given_again(over, submissions):
    dask, number = Dask("one"), itertools.count()
    dask.reply = lambda worker, order: graded_by(order) if next(number) else None
    with over(dask) as workers:
        found = outcomes(workers, submissions[:1])
    assert isinstance(found["ada"], SubmissionGrade) and len(dask.orders) == 2


def test_what_was_on_a_worker_that_is_gone_has_ended(over, submissions):
    dask = Dask("one")
    dask.reply = lambda worker, order: NEVER if worker == "one" else graded_by(order)

    def during():
        if dask.orders:
            dask.workers = ["two"]

    dask.during = during
    with over(dask) as workers:
        found = outcomes(workers, submissions[:2])
    assert "its worker ended, one (tcp://one)" in found.values()
    assert dask.futures[1].cancelled and not any(each.cancelled for each in dask.futures[2:])
    assert sorted(dask.looks) == ["one", "two"]


def test_a_worker_that_goes_while_it_is_looked_at_is_forgotten(over, submissions):
    dask = Dask("one")
    look = dask.submit

    def submit(function, words, local, key, **asked):
        future = look(function, words, local, key, **asked)
        if dask.looks == ["one"]:
            future.ends_with(NEVER)
            dask.workers = ["two"]
        return future

    dask.submit = submit
    with over(dask) as workers:
        outcomes(workers, submissions[:1])
    assert dask.tried() == [("two", "ada")]


def test_a_look_at_a_worker_that_is_gone_is_not_waited_for(over, submissions, monkeypatch):
    dask = Dask("one")
    monkeypatch.setattr(crew, "COMES_BACK", -1.0)

    def submit(*_, **asked):
        dask.workers = []
        return Future(NEVER)

    dask.submit = submit
    with pytest.raises(NoWorkers, match="no workers for too long"), over(dask) as workers:
        outcomes(workers, submissions[:1])


def test_a_scheduler_that_was_started_again_gets_all_orders_anew(over, submissions):
    dask = Dask("one")
    dask.reply = lambda worker, order: NEVER if dask.id == "first" else graded_by(order)

    def during():
        if dask.orders:
            dask.id = "second"

    dask.during = during
    with over(dask) as workers:
        found = outcomes(workers, submissions[:1])
    assert isinstance(found["ada"], SubmissionGrade)
    assert dask.tried() == [("one", "ada")] * 2 and dask.looks == ["one"] * 2
    ((futures, force), *_) = [each for each in dask.cancelled if each[0]]
    assert futures == [dask.futures[1]] and force


@pytest.mark.parametrize("gone", ["closed", "raises"])
def test_a_scheduler_that_is_away_is_waited_for(over, submissions, monkeypatch, gone):
    dask, tries, slept = Dask("one"), [], []
    dask.reply = lambda worker, order: graded_by(order) if tries else NEVER

    def during():
        if dask.orders and not tries:
            raise OSError("gone")
        if not dask.orders and gone == "closed":
            dask.status = "closed"

    def connect(address, seconds):
        tries.append(seconds)
        if len(tries) < 3:
            raise ConnectionError("no scheduler")
        dask.status, dask.during = "running", lambda: None
        return dask

    dask.during = during
    workers = over(dask)
    monkeypatch.setattr(dask_link, "connect", connect)
    monkeypatch.setattr(
        cluster,
        "time",
        SimpleNamespace(monotonic=lambda: float(len(slept)), sleep=slept.append),
    )
    with workers:
        found = outcomes(workers, submissions[:1])
    assert isinstance(found["ada"], SubmissionGrade)
    assert over.said == [
        "The scheduler at tcp://here:1 does not answer: waiting for it.",
        "The scheduler is back.",
    ]
    assert slept == [1.0, 1.0] and tries == [dask_link.CONNECT_LIMIT] * 3


def test_one_that_stays_away_is_given_up(over, submissions, monkeypatch):
    dask, now = Dask("one"), [0.0]

    def connect(address, seconds):
        raise ConnectionError("no Dask scheduler answers at tcp://here:1")

    def sleep(seconds):
        now[0] += 100 * seconds

    workers = over(dask)
    dask.status = "closed"
    monkeypatch.setattr(dask_link, "connect", connect)
    monkeypatch.setattr(
        cluster, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )
    with pytest.raises(ConnectionError, match="no Dask scheduler answers"), workers:
        outcomes(workers, submissions[:1])
    assert now[0] == crew.COMES_BACK + 100


def test_without_workers_that_may_grade_it_ends(over, submissions):
    dask = Dask("one")
    dask.about["course"] = "another"
    with (
        pytest.raises(NoWorkers, match="no worker is left that may grade"),
        over(dask) as workers,
    ):
        outcomes(workers, submissions[:1])
    assert not dask.orders


@pytest.mark.parametrize("alone, at_once", [(False, 2), (True, 1)])
def test_a_worker_gets_as_many_as_it_has_threads_or_one(over, submissions, alone, at_once):
    dask, most = Dask("one", threads=2), []
    dask.reply = lambda worker, order: NEVER

    def during():
        waiting = [each for each in dask.futures if each.reply is NEVER and each.called]
        most.append(len(waiting))
        if len(waiting) == at_once or len(dask.orders) == 3:
            for future in waiting:
                order = dask.orders[dask.futures.index(future) - 1][1]
                call = future.called
                future.ends_with(graded_by(order))
                call(future)

    dask.during = during
    with over(dask) as workers:
        assert len(outcomes(workers, submissions, alone)) == 3
    assert max(most) == at_once


def test_what_is_at_work_is_stopped_at_the_end(over, submissions):
    dask = Dask("one", "two")
    dask.reply = lambda worker, order: NEVER if dask.orders[1:] else graded_by(order)
    with over(dask) as workers:
        for _ in workers.outcomes(submissions, False):
            break
    ((function, words, asked),) = dask.ran
    command = dask.orders[0][1]["command"]
    assert function is eval and words == f"{dask_link._REMOTE}.stop({command!r})"
    at_work = {name for name, _ in dask.orders[1:]}
    assert asked == {"workers": [f"tcp://{name}" for name in at_work], "on_error": "ignore"}
    at_work = [each for each in dask.futures if each.reply is NEVER]
    assert dask.closed == 1 and dask.cancelled[-1] == (at_work, True)


def test_a_scheduler_that_is_gone_at_the_end_is_no_matter(over):
    dask = Dask()

    def fail(*_, **named):
        raise OSError("gone")

    dask.cancel = dask.close = fail
    with over(dask):
        pass


def test_it_connects_as_one_client_of_several_and_says_who_does_not_answer(monkeypatch):
    asked = []

    def client(address, **named):
        asked.append((address, named))
        if address == "tcp://nobody:1":
            raise TimeoutError("timed out")
        return "a client"

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=client))
    assert dask_link.missing() is None
    assert dask_link.connect("tcp://here:1", 3.0) == "a client"
    assert asked == [("tcp://here:1", {"timeout": 3.0, "set_as_default": False})]
    words = r"no Dask scheduler answers at tcp://nobody:1 \(timed out\)"
    with pytest.raises(ConnectionError, match=words):
        dask_link.connect("tcp://nobody:1", 3.0)


def test_without_dask_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install -e '.[cluster]'" in dask_link.missing()


def test_what_a_worker_evaluates_is_the_course_of_that_machine():
    assert eval(f"{dask_link._REMOTE}.look") is remote.look
