"""Which worker gets a submission. No Dask is needed for that."""

from pathlib import Path

import pytest

from lessons_grading import crew as crew_module
from lessons_grading.crew import COMES_BACK, MOST_FAILURES, Crew, NoWorkers
from lessons_grading.submissions import Submission

ADA, BOB = (Submission(name, Path(f"{name}.ipynb")) for name in ("ada", "bob"))


@pytest.fixture
def crew():
    crew = Crew("course", "", sandboxed=False, say=lambda words: None)
    assert crew.scheduler == "" and not crew.workers
    crew.update({"workers": {name: {"name": name, "nthreads": 2} for name in ("one", "two")}})
    looked_at = {"instance": "1", "about": {"course": "course", "mistakes": ""}}
    for worker in crew.workers.values():
        crew.was_looked_at(worker, looked_at)
    return crew


def test_a_submission_is_not_tried_again_where_it_failed_if_there_is_another(crew):
    one, two = crew.workers.values()
    crew.has_failed(one, ADA, "No space left")
    assert crew.free_worker(False, ADA) is two
    two.running.update("ab")
    assert crew.free_worker(False, ADA) is None  # it waits for the other one
    assert crew.free_worker(False, BOB) is one
    crew.has_failed(two, ADA, "No space left")
    assert crew.free_worker(False, ADA) is one  # it failed on both


def test_a_refused_worker_is_no_other_one(crew):
    one, two = crew.workers.values()
    crew.has_failed(one, ADA, "No space left")
    for number in range(MOST_FAILURES):
        crew.has_failed(two, Submission(f"s{number}", Path("s.ipynb")), "No space left")
    assert two.refused and crew.free_worker(False, ADA) is one


def test_three_failures_in_a_row_are_the_workers_own(crew):
    one, two = crew.workers.values()
    said = []
    crew.say = said.append
    for number in range(2):
        crew.has_failed(one, Submission(f"s{number}", Path("s.ipynb")), "No space left")
        crew.has_failed(one, Submission(f"s{number}", Path("s.ipynb")), "No space left")
    assert one.may_grade and not said
    for number in range(2, 5):  # those that were at work there already
        crew.has_failed(one, Submission(f"s{number}", Path("s.ipynb")), "No space left")
    assert not one.may_grade and two.may_grade
    assert said == [
        "Worker one gets nothing to grade: 3 submissions in a row failed there, "
        "the last with No space left"
    ]


def test_why_a_worker_was_refused_first_stays_its_reason(crew):
    one, _ = crew.workers.values()
    crew.refuse(one, "too old")
    for number in range(MOST_FAILURES):
        crew.has_failed(one, Submission(f"s{number}", Path("s.ipynb")), "No space left")
    assert one.refused == "too old"


def test_a_reason_is_a_line_of_500_characters_at_most(crew):
    one, two = crew.workers.values()
    crew.refuse(one, "no\n  space" + "." * 1_000)
    crew.refuse(two, "." * 500)
    assert one.refused == "no space" + "." * 492 and two.refused == "." * 500


def test_the_worker_with_the_most_free_threads_is_next(crew):
    one, two = crew.workers.values()
    one.threads = 5
    assert crew.free_worker(False, ADA) is one
    one.running.update("abcd")
    assert crew.free_worker(False, ADA) is two
    two.running.update("ef")
    assert crew.free_worker(False, ADA) is one
    one.running.add("g")
    assert crew.free_worker(False, ADA) is None


def test_a_worker_that_was_not_looked_at_gets_nothing(crew):
    crew.update({"workers": {"new": {"nthreads": 9}}})
    (new,) = crew.workers.values()
    assert (new.instance, new.refused, new.limited_by) == ("", "", "")
    assert (new.name, new.failures, new.running) == ("new", set(), set())
    assert not new.may_grade and crew.free_worker(False, ADA) is None


def test_alone_means_a_worker_without_work(crew):
    one, two = crew.workers.values()
    one.running.add("a")
    assert crew.free_worker(True, ADA) is two
    two.running.add("b")
    assert crew.free_worker(True, ADA) is None and crew.free_worker(False, ADA) is not None


GOOD = {"course": "course", "mistakes": "", "limited_by": "the kernel"}
LOOKED_AT = {  # what it answers, and why it gets nothing to grade
    "good": ({"instance": "1", "about": GOOD}, ""),
    "failed": ({"instance": "1", "failed": "no\n  course"}, "no course"),
    "a problem": ({"instance": "1", "about": GOOD | {"problem": "too old"}}, "too old"),
    "another course": (
        {"instance": "1", "about": GOOD | {"course": "other"}},
        "another version",
    ),
    "other mistakes": (
        {"instance": "1", "about": GOOD | {"mistakes": "mine"}},
        "other mistakes",
    ),
    "no sandbox": ({"instance": "1", "about": GOOD | {"sandbox": "no bwrap"}}, "no bwrap"),
}


@pytest.mark.parametrize("reply, reason", LOOKED_AT.values(), ids=LOOKED_AT)
def test_a_worker_is_looked_at_before_it_grades(reply, reason):
    said = []
    crew = Crew("course", "", sandboxed=True, say=said.append)
    gone, (worker,) = crew.update({"workers": {"tcp://one": {"name": "one", "nthreads": 3}}})
    assert gone == [] and worker.threads == 3 and worker.instance == ""
    assert not worker.may_grade
    crew.was_looked_at(worker, reply)
    assert worker.may_grade == (not reason) and reason in worker.refused
    assert worker.limited_by == ("" if "failed" in reply else "the kernel")
    assert said == (
        [f"Worker one (tcp://one) gets nothing to grade: {worker.refused}"] if reason else []
    )


def test_without_a_sandbox_none_is_needed(crew):
    worker = next(iter(crew.workers.values()))
    crew.was_looked_at(worker, {"instance": "2", "about": GOOD | {"sandbox": "no bwrap"}})
    assert worker.may_grade and worker.instance == "2"


def test_a_worker_that_does_not_answer_is_new_when_it_is_seen_again(crew):
    one, two = crew.workers.values()
    said = []
    crew.say = said.append
    crew.was_looked_at(one, {})
    assert [*crew.workers.values()] == [two] and not said
    there = {"workers": {"one": {"nthreads": 1}}}
    assert crew.update(there)[0] == [two]
    (again,) = crew.workers.values()
    assert again is not one and str(again) == "one" and not again.may_grade
    crew.forget(one)  # the old one, which had the same address
    assert [*crew.workers.values()] == [again]


def test_that_it_waits_for_a_first_worker_is_said_once():
    said = []
    crew = Crew("course", "", sandboxed=False, say=said.append)
    for _ in range(3):
        crew.expect_some(busy=False)
    assert said == ["The scheduler has no workers: waiting for one."]


class Clock:
    """Seconds that pass when a test says that they do."""

    now = 1000.0

    def monotonic(self):
        return self.now


def test_workers_may_be_away_for_a_time(monkeypatch):
    said = []
    clock = Clock()
    monkeypatch.setattr(crew_module, "time", clock)
    crew = Crew("course", "", sandboxed=False, say=said.append)
    crew.update({"workers": {"one": {"nthreads": 1}}})
    (one,) = crew.workers.values()
    crew.was_looked_at(one, {"instance": "1", "about": GOOD})
    clock.now += 10 * COMES_BACK
    crew.expect_some(busy=False)
    assert said == []
    crew.forget_all()
    clock.now += COMES_BACK
    crew.expect_some(busy=False), crew.expect_some(busy=False)
    assert said == ["The scheduler has no workers: waiting for one."]
    clock.now += 1
    crew.expect_some(busy=True)  # an answer is still to come
    clock.now += COMES_BACK
    crew.expect_some(busy=False)
    clock.now += 1
    with pytest.raises(NoWorkers, match="had no workers for too long"):
        crew.expect_some(busy=False)
    crew.forget_all()
    crew.expect_some(busy=False)


def test_where_all_are_refused_nobody_waits(crew):
    one, two = crew.workers.values()
    crew.refuse(one, "no bwrap")
    crew.expect_some(busy=False)
    crew.refuse(two, "too old")
    with pytest.raises(NoWorkers, match="one: no bwrap; two: too old"):
        crew.expect_some(busy=False)
